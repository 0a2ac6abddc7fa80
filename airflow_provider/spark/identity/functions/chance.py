"""Sources of chance: a fixed list of names in the standard library, NumPy and pandas whose results differ in each run.

docs/reuse.md shows it; a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Set

DRAWING: dict[str, frozenset[str]] = {
    "uuid": frozenset({"getnode", "uuid1", "uuid4", "uuid6", "uuid7", "uuid8"}),
    "os": frozenset({"getrandom", "urandom"}),
    "ssl": frozenset({"RAND_bytes"}),
    "tempfile": frozenset({"mktemp"}),
    "email.utils": frozenset({"formatdate", "localtime", "make_msgid"}),
    "pyspark.BarrierTaskContext.get": frozenset({"taskAttemptId"}),
    "pyspark.TaskContext.get": frozenset({"taskAttemptId"}),
    "datetime.datetime": frozenset({"now", "today", "utcnow"}),
    "datetime.date": frozenset({"today"}),
    "pandas.Timestamp": frozenset({"'now'", "'today'", "now", "today", "utcnow"}),
    "pandas.Period": frozenset({"'now'", "'today'", "now"}),
    "pandas.to_datetime": frozenset({"'now'", "'today'"}),
    "numpy.datetime64": frozenset({"'now'", "'today'"}),
}
"""Module, class or function → its random members; in quotes, texts that make it random wherever the code has them."""
CLOCK_WORDS = frozenset({"now", "today"})
"""The quoted texts."""
ALL_BUT: dict[str, frozenset[str]] = {
    "random": frozenset(),
    "secrets": frozenset({"compare_digest"}),
    "numpy.random": frozenset({"BitGenerator", "Generator"}),
    "time": frozenset(
        {"altzone", "daylight", "mktime", "sleep", "strptime", "struct_time", "timezone", "tzname", "tzset"}
    ),
}
"""Module → its members that are not random; all others are."""
SEEDED: dict[str, frozenset[str]] = {
    "random": frozenset({"Random"}),
    "numpy.random": frozenset(
        {"MT19937", "PCG64", "PCG64DXSM", "Philox", "RandomState", "SFC64", "SeedSequence", "default_rng"}
    ),
}
"""Module → generators, which are random unless they are made with a seed."""

_PARENTS = frozenset({"datetime", "numpy", "pandas"})
_OTHER_NAMES = {
    "posix": "os",
    "nt": "os",
    "_ssl": "ssl",
    "pandas._libs.tslibs.timestamps": "pandas",
    "pandas._libs.tslibs.period": "pandas",
    "pandas.core.tools.datetimes": "pandas",
    "pyspark.taskcontext": "pyspark",
}
"""The names by which pickles refer to some of them."""


def source_of_chance(path: str, *, seeded: bool = False, attributes: Set[str] = frozenset()) -> str:
    """Return the source of chance that code reaches by loading *path*; empty if it is none.

    :param path: a module, or a name in one, with dots
    :param seeded: whether it is called with a seed
    :param attributes: every attribute that the code uses on anything: a class may have another name there
    """
    path = _public(path)
    if path in _PARENTS or path in ALL_BUT or (path in DRAWING and "." not in path):
        return f"all of {path}"  # where it goes from there cannot be seen
    for module, harmless in ALL_BUT.items():
        if path.startswith(f"{module}."):
            name, _, further = path.removeprefix(f"{module}.").partition(".")
            made = name in SEEDED.get(module, ()) and seeded and not further
            return "" if made or name in harmless else f"{module}.{name}"
    for owner, names in DRAWING.items():
        asked = names & (attributes if path == owner else {path.removeprefix(f"{owner}.").partition(".")[0]})
        if asked and (path == owner or path.startswith(f"{owner}.")):
            return f"{owner}.{min(asked)}"
    return ""


def is_generator(path: str) -> bool:
    """Whether *path* makes generators, which are random unless they get a seed."""
    module, _, name = _public(path).rpartition(".")
    return name in SEEDED.get(module, ())


def _public(path: str) -> str:
    """Return the name by which the documentation knows *path*."""
    for other, name in _OTHER_NAMES.items():
        if path == other or path.startswith(f"{other}."):
            path = name + path.removeprefix(other)
    if not path.startswith("numpy.random."):
        return path
    names = path.split(".")
    return ".".join(name for name in names if not name.startswith("_") and name not in ("mtrand", "bit_generator"))
