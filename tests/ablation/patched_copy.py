"""A copy of the package and its tests in which one mechanism at a time is switched off."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ablation.mechanisms import Edit

ROOT = Path(__file__).parents[2]
_COPIED = ("airflow_provider", "tests", "tools", "pyproject.toml")
"""All that a test of the package reads; one that reads documents is no test of a mechanism."""
_SHARED = (".tools",)
"""What tools/setup.sh has made, which tests only read."""


class PatchDoesNotFit(Exception):
    """What a patch replaces is not there, or not once, or what comes of it is no Python."""


def make_copy(folder: Path) -> None:
    """Put all that tests need into *folder*."""
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    for name in _SHARED:
        if (ROOT / name).exists():
            (folder / name).symlink_to((ROOT / name).resolve())


def patched(edits: Iterable[Edit], root: Path = ROOT) -> dict[Path, str]:
    """Return the files that *edits* change, with their new texts.

    :raises PatchDoesNotFit: one of them does not fit
    """
    texts: dict[Path, str] = {}
    for edit in edits:
        path = root / "airflow_provider" / edit.file
        text = texts.get(path) or path.read_text()
        if (found := text.count(edit.old)) != 1:
            raise PatchDoesNotFit(f"{edit.file} has {found} times, not once: {edit.old!r}")
        texts[path] = text.replace(edit.old, edit.new)
    for path, text in texts.items():
        try:
            compile(text, str(path), "exec")
        except SyntaxError as error:
            raise PatchDoesNotFit(f"{path.name} is no Python any more: {error}") from error
    return texts


@contextmanager
def switched_off(edits: Iterable[Edit], copy: Path) -> Iterator[None]:
    """Have *edits* made in a copy, and undone at the end.

    :raises PatchDoesNotFit: one of them does not fit
    """
    texts = patched(edits, copy)
    before = {path: path.read_text() for path in texts}
    try:
        _write(texts)
        yield
    finally:
        _write(before)


def _write(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text)
        # Python tells a compiled file's age by seconds, and two patches may be quicker than that.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
