"""The names that code refers to: variables with the attributes used on them, and what its imports bind.

Only what the bytecode shows is covered. That includes whether a call passes a seed, because a generator without one is
random.
"""

from __future__ import annotations

import dis
import functools
import re
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import resolve_name
from types import CodeType

from airflow_provider.spark.identity.functions.bytecode import Looks, look
from airflow_provider.spark.identity.functions.chance import CLOCK_WORDS

_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_VARIABLES = ("GLOBAL", "NAME", "FAST", "DEREF")
_ENDS = ("JUMP", "POP_JUMP", "FOR_ITER", "SEND", "YIELD", "RETURN", "RAISE")
_CALLS = {"PRECALL", "CALL", "CALL_KW"}
_OPEN = "open"
_ONLY_WRITES = re.compile("[awx][bt]?|[bt][awx]")


@dataclass(frozen=True)
class Reference:
    """A variable that code loads.

    :ivar name: of the variable
    :ivar attributes: those used on it directly, one after the other
    :ivar seed: what it is called with directly: the name of a variable, or empty text for a value that is certainly not
        ``None``; ``None`` if it is not called, or without an argument, or with what may be ``None``
    :ivar parameter: whether the seed is a parameter of code inside the code in question
    """

    name: str
    attributes: tuple[str, ...] = ()
    seed: str | None = None
    parameter: bool = False


@dataclass
class References:
    """Everything that code, and all code inside it, refers to.

    :ivar loaded: variables
    :ivar imported: variable that an import binds → what it may be
    :ivar stars: modules that it imports by ``*``
    :ivar modules: modules that it gets by a call
    :ivar attributes: all attributes and global variables that it names, and in quotes its :data:`.CLOCK_WORDS`
    :ivar computed: whether it computes at run time what it runs or imports
    :ivar opens: whether it uses anything called ``open``, and not certainly to write only
    """

    loaded: list[Reference] = field(default_factory=list)
    imported: dict[str, set[str]] = field(default_factory=dict)
    stars: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    computed: bool = False
    opens: bool = False

    def add(self, other: References) -> None:
        """Add what other code refers to."""
        self.loaded += other.loaded
        for name, bound in other.imported.items():
            self.imported.setdefault(name, set()).update(bound)
        self.stars |= other.stars
        self.modules |= other.modules
        self.attributes |= other.attributes
        self.computed |= other.computed
        self.opens |= other.opens


@functools.lru_cache(maxsize=4096)
def references(code: CodeType, package: str, *, inside: bool = True) -> References:
    """Return what *code* refers to; do not change the result.

    :param package: that its relative imports start from
    :param inside: whether code inside it counts as well
    """
    found = References()
    _read(code, package, found, inside=inside, top=True)
    looks = Looks()
    look(code if inside else code.replace(co_consts=tuple(map(_no_code, code.co_consts))), looks)
    found.computed = looks.computed
    called = Counter(module for level, module, names in looks.imports if not level and not names)
    found.modules = set(called - _statements(code, inside=inside))
    return found


def _no_code(constant: object) -> object:
    return None if type(constant) is CodeType else constant


def _statements(code: CodeType, *, inside: bool) -> Counter[str]:
    """Return how often import statements name each module; all other imports are calls."""
    found = Counter(str(one.argval) for one in dis.get_instructions(code) if one.opname == "IMPORT_NAME")
    for inner in code.co_consts if inside else ():
        if type(inner) is CodeType:
            found += _statements(inner, inside=True)
    return found


def _read(code: CodeType, package: str, found: References, *, inside: bool, top: bool) -> None:
    instructions = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "EXTENDED_ARG", "NOP")]
    parameters = set() if top else set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    found.attributes.update(code.co_names)
    texts = {text.strip().lower() for text in code.co_consts if isinstance(text, str)}
    found.attributes.update(repr(text) for text in texts & CLOCK_WORDS)
    uncertain = _may_be_none(code, instructions)
    _imports(instructions, package, found)
    if _OPEN in (*code.co_names, *code.co_varnames, *code.co_freevars):
        found.opens |= not all(_only_writes(instructions, at) for at in range(len(instructions)))
    for at, instruction in enumerate(instructions):
        *alone, name = _loaded(instruction) or ("",)
        found.loaded += [Reference(other) for other in alone]
        if not name:
            continue
        after = at + 1
        while after < len(instructions) and instructions[after].opname in _ATTRIBUTES:
            after += 1
        attributes = tuple(one.argval for one in instructions[at + 1 : after])
        seed = _seed(instructions, after)
        found.loaded.append(Reference(name, attributes, None if seed in uncertain else seed, seed in parameters))
    for inner in code.co_consts if inside else ():
        if type(inner) is CodeType:
            _read(inner, package, found, inside=True, top=False)


def _loaded(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that an instruction loads, the last one on top."""
    kind, name = instruction.opname, instruction.argval
    if kind == "STORE_FAST_LOAD_FAST":
        return (name[1],)
    if not kind.startswith("LOAD_") or not any(word in kind for word in _VARIABLES):
        return ()
    return name if isinstance(name, tuple) else (str(name),)


def _imports(instructions: list[dis.Instruction], package: str, found: References) -> None:
    """Note what import statements bind."""
    module, bound, names = "", "", tuple[str, ...]()
    for at, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            level, names = instructions[at - 2].argval, tuple(instructions[at - 1].argval or ())
            module = _absolute(level, instruction.argval, package)
            bound = "" if names else module.partition(".")[0]
            if "*" in names:
                found.stars.add(module)
        elif instruction.opname == "IMPORT_FROM":
            bound = f"{module}.{instruction.argval}" if names else module  # else: import a.b as c
        elif instruction.opname.startswith("STORE_") and bound:
            name = instruction.argval
            found.imported.setdefault(name[0] if isinstance(name, tuple) else name, set()).add(bound)
            bound = ""


def _absolute(level: int, module: str, package: str) -> str:
    try:
        return resolve_name("." * level + module, package) if level else module
    except ImportError:
        return module


def _only_writes(instructions: list[dis.Instruction], at: int) -> bool:
    """Whether an instruction loads no ``open``, or one that is called directly to write a file and not to read it."""
    one = instructions[at]
    if one.argval != _OPEN or not one.opname.startswith(("LOAD_", "IMPORT_FROM")) or one.opname == "LOAD_CONST":
        return True
    given = _arguments(instructions, at + 1) or []
    first = 0 if one.opname in _ATTRIBUTES else 1  # a path
    texts = [each.argval for each in given[first:] if each.opname == "LOAD_CONST" and isinstance(each.argval, str)]
    return any(map(_ONLY_WRITES.fullmatch, texts))


def _seed(instructions: list[dis.Instruction], at: int) -> str | None:
    """Return what the callable that was loaded before *at* is called with; see :class:`Reference`."""
    given = _arguments(instructions, at)
    return None if given is None else _only(given)


def _arguments(instructions: list[dis.Instruction], at: int) -> list[dis.Instruction] | None:
    """Return what loads the arguments of the callable that was loaded before *at*; ``None`` if it is not called
    directly, or its arguments cannot be determined.
    """
    if at < len(instructions) and instructions[at].opname == "PUSH_NULL" and _NULL_BEHIND:
        at += 1
    depth, begin = 0, at
    for here, one in enumerate(instructions[at:], at):
        if one.opname in _CALLS and depth == (one.arg or 0) + (one.opname == "CALL_KW"):
            given = [each for each in instructions[begin:here] if each.opname != "KW_NAMES"]
            return given[:-1] if one.opname == "CALL_KW" else given
        if one.opname.startswith(_ENDS):
            return None
        depth += dis.stack_effect(one.opcode, one.arg)
        if depth < 0:
            return None
    return None


_NULL_BEHIND = "LOAD_FAST_LOAD_FAST" in dis.opmap  # since Python 3.13


def _only(given: list[dis.Instruction]) -> str | None:
    if len(given) == 1 and (variable := _loaded(given[0])):
        return variable[0]
    return "" if _is_something(given) else None


def _is_something(made_by: list[dis.Instruction]) -> bool:
    """Whether instructions certainly do not leave ``None`` on the stack: they leave a constant, or the result of an
    operation or of a function that always returns something.
    """
    if not made_by:
        return False
    last = made_by[-1]
    if last.opname == "LOAD_CONST":
        return last.argval is not None
    if last.opname.startswith(("LOAD_", "STORE_", "BINARY_SUBSCR", "BINARY_SLICE", "POP_", "COPY")):
        return False
    if last.opname not in _CALLS:
        return True
    called = {str(one.argval) for one in made_by if one.opname.startswith("LOAD_GLOBAL")}
    methods = {str(one.argval) for one in made_by if one.opname in _ATTRIBUTES}
    return str(made_by[0].argval) in _RETURN_SOMETHING & called or bool(methods & _RETURN_SOMETHING)


_RETURN_SOMETHING = frozenset(
    {"abs", "adler32", "crc32", "float", "from_bytes", "hash", "int", "len", "max", "min", "ord", "round", "str", "sum"}
)


def _may_be_none(code: CodeType, instructions: list[dis.Instruction]) -> set[str]:
    """Return the local variables of *code* that may be assigned ``None``."""
    found, begin = set[str](), 0
    for at, one in enumerate(instructions):
        if one.starts_line:
            begin = at
        if not one.opname.startswith("STORE_FAST") or instructions[at - 1].opname in ("FOR_ITER", "UNPACK_SEQUENCE"):
            continue
        made_by = [each for each in instructions[begin:at] if each.opname != "PUSH_NULL"]
        if not _is_something(made_by) and not (made_by and _loaded(made_by[-1])):
            found.add(one.argval[0] if isinstance(one.argval, tuple) else one.argval)
    return found
