"""Which folders of committed tasks a retry may keep."""

from __future__ import annotations

import uuid

from airflow_provider.core.task_output import Cut, TaskFolder, committed_tasks
from airflow_provider.core.unfinished_write import UnfinishedWrite

OWN, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
WRITE = UnfinishedWrite("file:/out", 1, 77, "file:/out", existed=False, before="d", mode="append")


def folder(partition: int, *files: str, name: str = "", whole: bool = True, attempt: int = 77) -> TaskFolder:
    task = name or f"task_202611270101017777777777_0003_m_{partition:06}"
    return TaskFolder(f"file:/kept/{attempt}/{task}", whole, files or (file_of(partition),))


def file_of(partition: int, write: str = OWN) -> str:
    return f"part-{partition:05}-{write}-c000.snappy.parquet"


def test_a_task_is_known_by_its_folder_and_by_all_of_its_files() -> None:
    """Both name the partition, and each file names the write; a task may have several files."""
    several = folder(7, file_of(7), file_of(7).replace("-c000", ".c000"), file_of(7).replace("c000", "c001"))
    last = folder(100000, f"part-100000-{OWN}.c000.csv")
    assert committed_tasks([folder(0), several, last], OWN) == {0: folder(0).path, 7: several.path, 100000: last.path}


def test_what_may_be_anything_else_is_not_kept() -> None:
    """Another write's, another partition's, a bucket's, no file at all, no task, or a folder that has changed since."""
    strange = [
        folder(1, file_of(1, OTHER)),
        folder(2, file_of(2), file_of(2, OTHER)),
        folder(3, file_of(4)),
        folder(5, f"part-00005-{OWN}_00001.c000.snappy.parquet"),
        folder(6, "data.csv"),
        TaskFolder(folder(7).path, True, ()),
        folder(8, name="attempt_20261127_0003_m_000008_1"),
        folder(9, whole=False),
    ]
    assert committed_tasks(strange, OWN) == {}


def test_of_several_folders_of_one_partition_one_counts() -> None:
    """Tasks of two attempts write the same rows; whichever is kept, it is always the same one."""
    first, second = folder(4, attempt=77), folder(4, attempt=88)
    assert len(committed_tasks([first, second], OWN)) == 1
    assert committed_tasks([first, second], OWN) == committed_tasks([second, first], OWN)


def test_a_cut_is_remembered() -> None:
    """As plain JSON; of an older release's record no task can be kept."""
    cut = Cut("layout", (((0, 2), (2, 3)), ()), "")
    assert Cut.from_state(cut.to_state()) == cut
    assert Cut.from_state(None) == Cut.from_state({"layout": "x"}) == Cut()
    known = WRITE.known_as(OWN, cut)
    assert UnfinishedWrite.from_state(known.to_state()) == known
    old = known.to_state()
    del old["cut"], old["kept"]
    assert UnfinishedWrite.from_state(old) == WRITE.known_as(OWN)


def test_only_a_write_that_is_certain_to_be_repeated_is_kept() -> None:
    """By one name, with a cut; not if its rows may be others, or a batch of a stream has them, or a try has failed."""
    cut = Cut("layout")
    assert WRITE.known_as(OWN, cut).may_be_kept
    assert WRITE.known_as(OWN, cut).taken_over(2, 88).may_be_kept
    assert not WRITE.known_as(OWN).may_be_kept
    assert not WRITE.known_as(OWN, cut).known_as(OTHER, cut).may_be_kept
    for field in ({"repeated": True}, {"of_a_batch": True}, {"failed": [OTHER]}, {"watched": False}):
        changed = UnfinishedWrite.from_state({**WRITE.known_as(OWN, cut).to_state(), **field})
        assert changed is not None
        assert not changed.may_be_kept
