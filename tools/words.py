"""The words that this project does not use, and what it says instead: ``python tools/words.py`` names each place.

One word for one thing, wherever a user looks; the glossary is the table below. Run by ``make lint``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SAY = {
    r"mend(s|ed|ing)?": "fix",
    r"hopeless": "unrecoverable",
    r"in vain": "failed, did not come",
    r"dear(er|est)?": "costly, costs more",
    r"gone for good": "lost",
    r"had back": "restored, undone",
    r"worth having": "the reason why it is skipped",
    r"(brought|brings?) forth": "result, wrote",
}
"""Pattern of whole words → what to say."""
LOOKED_AT = (".py", ".md", ".js", ".html", ".css", ".sh", ".toml", ".yml")
ELSEWHERE = ("CHANGELOG.md", "tools/words.py", "tests/queries/scripts/")
"""What quotes others, or is written as users write."""


def main() -> int:
    """Print each place; return how many there are, at most 1."""
    patterns = [(re.compile(rf"\b{pattern}\b", re.IGNORECASE), say) for pattern, say in SAY.items()]
    root = Path(__file__).parents[1]
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
    found = 0
    for name in listed.stdout.splitlines():
        if not name.endswith(LOOKED_AT) or name.startswith(ELSEWHERE) or not (root / name).is_file():
            continue
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            for pattern, say in patterns:
                for match in pattern.finditer(line):
                    found += 1
                    print(f"{name}:{number}: not {match.group()!r}; say {say}")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
