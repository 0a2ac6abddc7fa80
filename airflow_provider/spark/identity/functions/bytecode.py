"""What a code object does, apart from how it was written: its shape for digests, and what it imports and looks at.

The shape leaves out file names, lines, names of functions and of local variables, and docstrings. Constants count where
an instruction loads them, so a docstring, which none loads, changes nothing.
"""

from __future__ import annotations

import dis
import inspect
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

_CONSTANT = frozenset(dis.hasconst)
_LOAD_CONST = dis.opmap["LOAD_CONST"]
_STORE_NAME = dis.opmap["STORE_NAME"]
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_EXTENDED = dis.EXTENDED_ARG
_FLAGS = (
    inspect.CO_OPTIMIZED
    | inspect.CO_NEWLOCALS
    | inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)
_BOOKKEEPING = {"__qualname__", "__firstlineno__", "__static_attributes__"}
_SPECIAL_CELLS = {"__class__", "__classdict__"}  # super() looks for them by name

IMPORTERS = frozenset({"import_module", "__import__"})
COMPUTING = frozenset(
    {
        "entry_points", "exec_module", "import_string", "iter_entry_points", "load_module", "locate", "reload",
        "resolve_name", "run_module", "run_path",
    }
)  # fmt: skip
LAZY = frozenset({"attach", "attach_stub"})
"""What packages call to import their modules on first use."""
EVALUATING = frozenset({"exec", "eval", "compile"})
"""Calls that can reach any module, as :data:`IMPORTERS` can, which show theirs if the argument is a literal."""


@dataclass(frozen=True)
class Shape:
    """What a code object does.

    :ivar facts: numbers and names that count
    :ivar instructions: its instructions without the numbers of constants
    :ivar constants: the constants in the order in which instructions load them
    """

    facts: tuple[Any, ...]
    instructions: bytes
    constants: list[Any]


def shape(code: CodeType, *, local_names: bool, docs: bool, places: bool) -> Shape:
    """Return the shape of *code*.

    :param local_names: whether names of local variables count
    :param docs: whether docstrings of classes inside it count
    :param places: whether its name, file and lines count
    """
    arguments = code.co_argcount + code.co_kwonlyargcount
    cells = code.co_cellvars + code.co_freevars
    named = not code.co_flags & inspect.CO_OPTIMIZED  # a class body looks for cells by name
    facts: list[Any] = [
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & _FLAGS,
        code.co_varnames[code.co_posonlyargcount : arguments],
        code.co_nlocals,
        len(code.co_freevars),
        tuple(code.co_varnames.index(name) if name in code.co_varnames else -1 for name in code.co_cellvars),
        tuple(name if named or name in _SPECIAL_CELLS else "" for name in cells),
        code.co_names,
        code.co_exceptiontable,
    ]
    if local_names:
        facts += [code.co_varnames, cells]
    if places:
        facts += [code.co_name, code.co_qualname, code.co_filename, code.co_firstlineno, code.co_linetable]
    skipped = _BOOKKEEPING if docs else _BOOKKEEPING | {"__doc__"}
    data = code.co_code
    kept = bytearray()
    constants: list[Any] = []
    extended = 0
    start = 0
    for at in range(0, len(data), 2):
        op, arg = data[at], data[at + 1]
        if op == _EXTENDED:
            extended = (extended | arg) << 8
            continue
        if op in _CONSTANT:
            kept.append(op)
            if not _is_bookkeeping(code, data, at, skipped):
                constants.append(code.co_consts[extended | arg])
        else:
            kept += data[start : at + 2]
        extended = 0
        start = at + 2
    return Shape(tuple(facts), bytes(kept), constants)


def _is_bookkeeping(code: CodeType, data: bytes, at: int, names: set[str]) -> bool:
    """Whether a class body loads a constant only to store it under one of *names*."""
    if code.co_flags & inspect.CO_OPTIMIZED or data[at] != _LOAD_CONST or at + 3 >= len(data):
        return False
    return data[at + 2] == _STORE_NAME and code.co_names[data[at + 3]] in names


@dataclass
class Looks:
    """What code imports and looks at.

    :ivar words: every name that it uses, and every text constant
    :ivar imports: level, module and names of each import
    :ivar computed: whether it computes at run time what it imports
    """

    words: set[str] = field(default_factory=set)
    imports: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    computed: bool = False


def look(code: CodeType, looks: Looks) -> None:
    """Add to *looks* what *code*, and all code inside it, imports and looks at."""
    looks.words.update(_names(code))
    for constant in code.co_consts:
        if type(constant) is CodeType:
            look(constant, looks)
        elif type(constant) is str:
            looks.words.add(constant)
    reaching = (IMPORTERS | COMPUTING | EVALUATING).intersection(code.co_names)
    if not reaching and _IMPORT_NAME not in code.co_code[::2]:
        return
    instructions = [one for one in dis.get_instructions(code) if one.opname not in _FILLERS]
    for at, instruction in enumerate(instructions):
        if instruction.opcode == _IMPORT_NAME:
            level, names = instructions[at - 2].argval, instructions[at - 1].argval
            looks.imports.append((level, instruction.argval, tuple(names or ())))
            if reaching.intersection(names or ()):
                looks.computed = True
        elif instruction.argval in reaching and instruction.opname.startswith("LOAD_"):
            named = _literal(instructions[at + 1 : at + 3])
            if instruction.argval in EVALUATING and not instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
                continue  # a method of that name
            if instruction.argval in IMPORTERS and named and not named.startswith("."):
                looks.imports.append((0, named, ()))
            elif instruction.opname != "LOAD_CONST":
                looks.computed = True


def _names(code: CodeType) -> set[str]:
    """Return the names that *code* uses, without those that every class body uses."""
    names = set(code.co_names)
    if code.co_flags & inspect.CO_OPTIMIZED or not names & _IN_CLASS_BODIES:
        return names
    loaded = [one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_NAME", "LOAD_GLOBAL")]
    if "__name__" in loaded:
        loaded.remove("__name__")  # for __module__
    return (names - _IN_CLASS_BODIES) | {name for name in loaded if name != "__annotations__"}


_IN_CLASS_BODIES = {"__name__", "__module__", "__qualname__", "__doc__", "__annotations__"}
_FILLERS = {"CACHE", "EXTENDED_ARG", "PUSH_NULL", "PRECALL", "NOP"}


def _literal(following: list[dis.Instruction]) -> str | None:
    """Return the text with which a function is called at once, as its only argument."""
    if len(following) == 2 and following[0].opname == "LOAD_CONST" and following[1].opname == "CALL":
        value = following[0].argval
        return value if type(value) is str and following[1].arg == 1 else None
    return None
