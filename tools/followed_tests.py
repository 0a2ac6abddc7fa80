"""What became of each test between two commits: ``python tools/followed_tests.py OLD [NEW] [--all]`` prints a table.

A test's docstring is its claim. A test that is gone under its name is looked for by name in other files, then by its
claim, then by its code; what is found by none of these is listed as removed, and somebody has to say where its claim is
proved now. Reads the sources only; nothing is run.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BY_COMMAND = ("integration", "walk")
"""Markers that say which command runs a test."""
PARAMETERS = "mark.parametrize("


@dataclass(frozen=True)
class Test:
    """A test function.

    :ivar decorators: its own, and its module's ``pytestmark``
    """

    file: str
    name: str
    claim: str
    body: str
    decorators: str

    @property
    def place(self) -> str:
        """As pytest names it."""
        return f"{self.file}::{self.name}"

    @property
    def command(self) -> str:
        """Which command runs it, by the markers in its file; what a fixture asks for is not seen."""
        lines = self.decorators.splitlines()
        whole = [name for name in BY_COMMAND if any(f"mark.{name}" in line for line in lines if PARAMETERS not in line)]
        partly = [name for name in BY_COMMAND if name not in whole and f"mark.{name}" in self.decorators]
        return ", ".join([*(whole or ["test"]), *(f"{name} for some cases" for name in partly)])


def main() -> int:
    """Print the table; return 1 if a test was removed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--all", action="store_true", help="list the tests that stayed as they are, too")
    asked = parser.parse_args()
    old, new = list(tests_of(asked.old)), list(tests_of(asked.new))
    followed = follow(old, new)
    print("| test | became | how |\n|---|---|---|")
    for test in old:
        successor = followed.get(test)
        how = changes(test, successor)
        if how or asked.all:
            place = "" if successor is None else successor.place if successor.place != test.place else "the same"
            print(f"| {test.place} | {place} | {how or 'as it was'} |")
    fresh = [test for test in new if test not in set(followed.values())]
    for test in fresh:
        print(f"| | {test.place} | new: {test.claim} |")
    removed = [test for test in old if test not in followed]
    print(f"\n{len(old)} tests before, {len(new)} after; {len(removed)} removed, {len(fresh)} new.")
    return bool(removed)


def follow(old: list[Test], new: list[Test]) -> dict[Test, Test]:
    """Return which test became which: by place, name and claim, name, claim, or code, the first that fits one test."""
    keys: tuple[Callable[[Test], object], ...] = (
        lambda test: test.place,
        lambda test: (test.name, test.claim),
        lambda test: test.name,
        lambda test: test.claim or test.place,
        lambda test: test.body,
    )
    found: dict[Test, Test] = {}
    left, free = list(old), list(new)
    for key in keys:
        by_key = {key(test): test for test in free}
        taken = set()
        for test in left:
            successor = by_key.get(key(test))
            if successor is not None and successor not in taken:
                found[test] = successor
                taken.add(successor)
        left = [test for test in left if test not in found]
        free = [test for test in free if test not in taken]
    return found


def changes(test: Test, successor: Test | None) -> str:
    """Return in words what has become of a test; empty text if nothing has."""
    if successor is None:
        return f"removed: {test.claim}"
    said = []
    if successor.file != test.file:
        said.append("moved")
    if successor.name != test.name:
        said.append("renamed")
    if successor.command != test.command:
        said.append(f"{test.command} → {successor.command}")
    elif successor.decorators != test.decorators:
        said.append("other cases or markers")
    if successor.body != test.body:
        said.append("other code")
    return ", ".join(said)


def tests_of(commit: str) -> Iterator[Test]:
    """Yield the test functions of a commit, in the order of files and lines."""
    listed = git("ls-tree", "-r", "--name-only", commit, "--", "tests").splitlines()
    for file in listed:
        if not Path(file).name.startswith("test_") or not file.endswith(".py"):
            continue
        tree = ast.parse(git("show", f"{commit}:{file}"))
        marks = [
            ast.unparse(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["pytestmark"]
        ]
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                decorators = "\n".join([*marks, *map(ast.unparse, node.decorator_list)])
                claim = " ".join((ast.get_docstring(node) or "").split())
                yield Test(file, node.name, claim, "\n".join(map(ast.unparse, node.body)), decorators)


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
