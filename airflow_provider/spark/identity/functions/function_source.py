"""What a module's source means, apart from how it is written: its digests, and what it imports and looks at.

Comments, whitespace and positions never count. Docstrings and annotations of functions count only where something may
look at them, so a source has two digests. Annotations in class bodies always count, because dataclasses are made of
them.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from types import CodeType

from airflow_provider.spark.identity.functions.bytecode import COMPUTING, EVALUATING, IMPORTERS, LAZY


@dataclass(frozen=True)
class Source:
    """The meaning of a module's source.

    :ivar plain: digest without docstrings and annotations of functions
    :ivar full: digest with them
    :ivar imports: level, module and names of each import
    :ivar words: names that it uses, and its short texts
    :ivar exported: texts in its ``__all__``, which a star import may import as modules
    :ivar computed: whether it computes at run time what it imports
    :ivar code: what runs when it is imported; ``None`` if it cannot be read
    :ivar none: parameters of its functions that default to ``None``
    :ivar registered: its functions and classes that may be called without being named: a decorator or a base class may
        have put them into a list
    """

    plain: str
    full: str
    imports: tuple[tuple[int, str, tuple[str, ...]], ...] = ()
    words: frozenset[str] = frozenset()
    exported: tuple[str, ...] = ()
    computed: bool = False
    code: CodeType | None = None
    none: frozenset[str] = frozenset()
    registered: frozenset[str] = frozenset()


def read_source(text: str | bytes) -> Source:
    """Return the meaning of *text*; text that cannot be parsed is taken literally."""
    try:
        tree = ast.parse(text)
        code = compile(tree, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return unparsed(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    reader = _Reader()
    reader.visit(tree)
    full = _digest(_Uniform().visit(tree))
    return Source(
        plain=_digest(_Plain().visit(tree)),
        full=full,
        imports=tuple(reader.imports),
        words=frozenset(reader.words),
        exported=tuple(reader.exported),
        computed=reader.computed or any(getattr(node, "name", "") == "__getattr__" for node in tree.body),
        code=code,
        none=frozenset(reader.none),
        registered=frozenset(filter(None, map(_registered, tree.body))),
    )


_NO_REGISTRY = {
    "abstractmethod", "cache", "cached_property", "contextmanager", "dataclass", "final", "jit", "lru_cache", "njit",
    "overload", "pandas_udf", "property", "runtime_checkable", "staticmethod", "total_ordering", "udf", "udtf",
    "unique", "vectorize", "wraps",
}  # fmt: skip
"""Decorators that register nothing."""
_NO_LISTENERS = {
    "ABC", "BaseModel", "Enum", "Exception", "Generic", "IntEnum", "NamedTuple", "Protocol", "StrEnum", "TypedDict",
    "UserDefinedType", "dict", "list", "object", "str", "tuple",
}  # fmt: skip
"""Base classes that do not keep track of their subclasses, like all classes named as an error."""


def _registered(node: ast.stmt) -> str:
    """Return the name of a function or class that may have been registered; empty for anything else."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return ""
    bases = [_last_name(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    noted = not all(base in _NO_LISTENERS or base.endswith("Error") for base in bases)
    noted |= not all(_last_name(each) in _NO_REGISTRY for each in node.decorator_list)
    return node.name if noted else ""


def _last_name(node: ast.expr) -> str:
    """Return the last name of ``a.b.c``, of ``c(…)`` and of ``c[…]``."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def unparsed(data: bytes) -> Source:
    """Return what is known of a module that is available as bytes only."""
    sha = hashlib.sha256(data).hexdigest()
    return Source(sha, sha)


def _digest(tree: ast.AST) -> str:
    return hashlib.sha256(ast.dump(tree, annotate_fields=False).encode("utf-8", "surrogatepass")).hexdigest()


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.imports: list[tuple[int, str, tuple[str, ...]]] = []
        self.words: set[str] = set()
        self.exported: list[str] = []
        self.none: set[str] = set()
        self.computed = False

    def visit_Import(self, node: ast.Import) -> None:
        self.imports += [(0, alias.name, ()) for alias in node.names]
        self.words.update(alias.name for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        names = tuple(alias.name for alias in node.names)
        self.imports.append((node.level, node.module or "", names))
        self.words.update(names)
        if any(alias.name in IMPORTERS | COMPUTING and alias.asname for alias in node.names):
            self.computed = True

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        literal = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
        if name in IMPORTERS and isinstance(literal, str) and not node.keywords and not literal.startswith("."):
            self.imports.append((0, literal, ()))
            return
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.words.add(node.id)
        self.computed |= node.id in IMPORTERS | COMPUTING | EVALUATING

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.words.add(node.attr)
        self.computed |= node.attr in IMPORTERS | COMPUTING | LAZY
        self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        named = [*node.posonlyargs, *node.args]
        pairs = [*zip(reversed(named), reversed(node.defaults), strict=False)]
        pairs += [(argument, given) for argument, given in zip(node.kwonlyargs, node.kw_defaults, strict=True) if given]
        self.none.update(argument.arg for argument, given in pairs if getattr(given, "value", "") is None)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and len(node.value) < 64:
            self.words.add(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._exports(node.targets, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._exports([node.target], node.value)
        self.generic_visit(node)

    def _exports(self, targets: list[ast.expr], value: ast.expr) -> None:
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            constants = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
            self.exported += [text for text in constants if isinstance(text, str)]


class _Uniform(ast.NodeTransformer):
    """Normalises how constants are spelt."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        node.kind = None
        return node


class _Plain(ast.NodeTransformer):
    """Removes docstrings, and annotations of functions and of variables outside classes."""

    def __init__(self) -> None:
        self._in_class = False

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._body(node, in_class=False)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._body(node, in_class=True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._body(node, in_class=False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._body(node, in_class=False)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if self._in_class:
            return node
        if node.value is not None and isinstance(node.target, ast.Name):
            return ast.Assign(targets=[node.target], value=node.value)
        node.annotation = ast.Constant(value=None)  # it still makes the variable a local one
        return node

    def _body(
        self, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, *, in_class: bool
    ) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        outer, self._in_class = self._in_class, in_class
        self.generic_visit(node)
        self._in_class = outer
        return node
