"""What threads of a script share, settings of a session above all, is changed by nobody of ours.

Whoever changes a setting and puts it back changes it for all threads meanwhile, and two who do so at once may leave it
changed. What belongs to one thread alone may be set and put back; a copy of a session may be changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_provider

SPARK = Path(airflow_provider.__file__).parent / "spark"
SETTERS = {
    *("setActiveSession", "clearActiveSession", "setDefaultSession", "clearDefaultSession"),
    *("setLocalProperty", "setLocalProperties", "setJobGroup", "setJobDescription", "setCallSite", "clearCallSite"),
    *("addJobTag", "removeJobTag", "clearJobTags", "setInterruptOnCancel", "setCheckpointDir", "setLogLevel"),
    *("setConf", "setConfString", "unset", "unsetConf", "setSystemProperty", "setProperty", "registerShutdownHook"),
}
OF_ONE_THREAD = "of one thread of the JVM, which a thread of Python has for itself"
NOBODY_ELSES = "a copy that nobody else has"
ALLOWED = {
    "jvm/session_settings.py: sessions.setActiveSession": OF_ONE_THREAD,
    "jvm/session_settings.py: sessions.clearActiveSession": OF_ONE_THREAD,
    "jvm/session_settings.py: context.setLocalProperties": OF_ONE_THREAD,
    "jvm/session_settings.py: properties.setProperty": NOBODY_ELSES,
    "jvm/purposes.py: properties.setProperty": OF_ONE_THREAD,
    "jvm/execution.py: context.setLocalProperty": OF_ONE_THREAD,
    "jvm/execution.py: context.addJobTag": OF_ONE_THREAD,
    "jvm/execution.py: context.removeJobTag": OF_ONE_THREAD,
    "jvm/execution.py: session.conf().set": NOBODY_ELSES,
    "jvm/partition_write.py: session.conf().set": NOBODY_ELSES,
    "jvm/partition_write.py: configuration.set": NOBODY_ELSES,
    "jvm/partition_write.py: configuration.unset": NOBODY_ELSES,
    "jvm/relation.py: copy.conf().set": NOBODY_ELSES,
    "jvm/pending_output.py: spark._jsc.hadoopConfiguration().set": "once, before the script gets its session",
}


def changes(tree: ast.AST) -> Iterator[str]:
    """What is called to change a setting, a property or a session."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in SETTERS or (
                node.func.attr in ("set", "setIfMissing", "clear") and re.search(r"conf(ig\w*)?(\(\))?$", owner, re.I)
            ):
                yield ast.unparse(node.func)


def test_nothing_that_threads_share_is_changed() -> None:
    """Each place that sets something is known, and sets what no other thread sees."""
    found = {
        f"{file.relative_to(SPARK).as_posix()}: {change}"
        for file in SPARK.rglob("*.py")
        for change in changes(ast.parse(file.read_text()))
    }
    assert found == set(ALLOWED)


def test_no_java_class_changes_a_setting() -> None:
    """Those that come along with the package."""
    shared = SETTERS - {"setLocalProperty", "setLocalProperties"}  # these are a thread's own
    setters = re.compile(rf"\.(?:{'|'.join(sorted(shared))})\(|(?i:conf(?:ig\w*)?(?:\(\))?)\.set\(")
    files = list((SPARK / "jvm" / "java").glob("*.java"))
    assert files
    assert [file.name for file in files if setters.search(file.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        "spark.conf.set('a', 'b')",
        "spark._jsparkSession.conf().set('a', 'b')",
        "spark._jsc.hadoopConfiguration().set('a', 'b')",
        "spark.sparkContext.setLocalProperty('a', 'b')",
        "spark._jsparkSession.sessionState().conf().setConfString('a', 'b')",
    ],
)
def test_a_change_is_found(text: str) -> None:
    """The walk sees the ways in which a setting is changed."""
    assert list(changes(ast.parse(text)))
