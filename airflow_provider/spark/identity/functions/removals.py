"""Words by which a script's code may remove or move files, by itself or by another program. A fixed list."""

from __future__ import annotations

from collections.abc import Set

_REMOVING = frozenset(
    {
        "Popen", "delete", "deleteOnExit", "delete_blob", "delete_blobs", "delete_dir", "delete_dir_contents",
        "delete_file", "delete_object", "delete_objects", "moveToTrash", "move", "popen", "remove", "removedirs",
        "rename", "renames", "rm", "rm_file", "rmdir", "rmtree", "subprocess", "system", "unlink",
    }
)  # fmt: skip


def removal_in(words: Set[str]) -> str:
    """Return a word by which files may be removed or moved; empty if there is none.

    :param words: all names that the code uses
    """
    return min(words & _REMOVING, default="")
