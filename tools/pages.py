"""Adds to the pages of ``make docs`` what stands outside of docs/: README and its kin, and the examples of dags/.

MkDocs calls ``on_files``, ``on_page_markdown`` and ``on_page_content``: https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?P<text>!?\[[^\[\]]*\])\((?!https?://|#)(?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
DOCUMENTS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
ROLE = re.compile(r":(?:class|func|meth|attr|exc|mod|data):(<code>)~?")


def page_of(path: str) -> str | None:
    """Return the page made from a file of the repository; None for a file that has none."""
    if path in DOCUMENTS:
        return DOCUMENTS[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("dags/") and path.endswith(".py"):
        return f"examples/{PurePosixPath(path).stem}.md"
    return None


def example(path: Path) -> str:
    """Return the page of an example: what its docstring says, then its code."""
    code = path.read_text()
    docstring = ast.get_docstring(ast.parse(code)) or ""
    return f"# {path.name}\n\n{docstring}\n\n```python\n{code}```\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the examples and decisions to the navigation."""
    examples = sorted((ROOT / "dags").glob("*.py"))
    for name, page in DOCUMENTS.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for path in examples:
        files.append(File.generated(config, f"examples/{path.stem}.md", content=example(path)))
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    for section in config.nav or []:
        if isinstance(section, dict) and "Examples" in section:
            section["Examples"] = [f"examples/{path.stem}.md" for path in examples]
        if isinstance(section, dict) and "Work on it" in section:
            section["Work on it"].append({"Decisions": [f"decisions/{path.name}" for path in decisions]})
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links between files of the repository lead from page to page; of a link to another file, the text stays."""
    sources = {target: source for source, target in DOCUMENTS.items()}
    here = page.file.src_uri
    source = sources.get(here, f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        target = page_of(normpath(str(PurePosixPath(source).parent / match["target"])))
        if target is None:
            return match["text"].lstrip("[").rstrip("]")
        return f"{match['text']}({relpath(target, str(PurePosixPath(here).parent))}{match['anchor'] or ''})"

    return LINK.sub(link, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave out the roles of Sphinx, which docstrings have before names."""
    return ROLE.sub(r"\1", html)
