"""Turn a decorated task function into the script that is shipped to the driver. Pure, except that it reads the
function's file.

Source and arguments travel in one file, arguments as JSON: nothing is pickled or put on a command line. So the function
must be self-contained, which is checked when the DAG is parsed, and its arguments must be plain JSON.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from airflow_provider.core.errors import ConfigurationError

SESSION_PARAMETERS = ("spark", "sc")
"""Parameters that the driver fills with its session and its context, as for ``@task.pyspark``."""

_MAKE_IT_STAND_ALONE = (
    "Only the function's own source goes to the driver: import and define inside of it what it needs, "
    "and pass it the rest as arguments."
)
_PLAIN = "Arguments travel as JSON: pass text, numbers, true, false, None, lists and dictionaries of them."


def require_shippable(function: Callable[..., Any]) -> None:
    """Make sure that the function is self-contained: its own source is enough to run it.

    :raises ConfigurationError: it is not a plain function, closes over variables, or uses names of its module
    """
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise ConfigurationError(
            f"@task.spark_recovery decorates {function!r}, which is not a function made with 'def'.",
            remedy="Decorate a plain function.",
        )
    name = function.__name__
    if getattr(function, "__wrapped__", None) is not None:
        raise ConfigurationError(
            f"The task function {name!r} has another decorator below @task.spark_recovery, which would be lost.",
            remedy="Apply it inside of the function.",
        )
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_one(function) for is_one in kinds):
        raise ConfigurationError(
            f"The task function {name!r} is a coroutine or a generator.", remedy="Make it return its result."
        )
    if closed_over := [variable for variable in function.__code__.co_freevars if variable != name]:
        raise ConfigurationError(
            f"The task function {name!r} closes over {_listed(closed_over)}.", remedy=_MAKE_IT_STAND_ALONE
        )
    if foreign := sorted(_globals_read(function.__code__) - set(dir(builtins)) - {name, "__name__"}):
        raise ConfigurationError(
            f"The task function {name!r} uses {_listed(foreign)} from outside of it.", remedy=_MAKE_IT_STAND_ALONE
        )
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise ConfigurationError(
                f"The task function {name!r} takes {parameter.name!r}, which cannot be passed by its name.",
                remedy="Make it an ordinary parameter.",
            )


def caller_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature that a DAG sees, without the parameters that the driver fills in."""
    signature = inspect.signature(function)
    return signature.replace(
        parameters=[p for name, p in signature.parameters.items() if name not in SESSION_PARAMETERS]
    )


def arguments_of(
    function: Callable[..., Any],
    op_args: Sequence[Any],
    op_kwargs: Mapping[str, Any],
    context: Mapping[str, Any],
) -> dict[str, Any]:
    """Return all arguments by name, as plain JSON: given ones, ones from Airflow's context, and defaults.

    :raises ConfigurationError: they do not match the signature, or one is not plain JSON
    """
    signature = caller_signature(function)
    asked_for = {p.name for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
    from_context = {name: context[name] for name in asked_for if name in context and name not in op_kwargs}
    given_by_position = list(signature.parameters)[: len(op_args)]
    for name in given_by_position:
        from_context.pop(name, None)
    try:
        bound = signature.bind(*op_args, **from_context, **op_kwargs)
    except TypeError as error:
        raise ConfigurationError(
            f"The task function {function.__name__!r} cannot be called as the DAG says: {error}.",
            remedy="Pass what its parameters ask for.",
        ) from error
    bound.apply_defaults()
    values: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        spread = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        values |= value if spread else {name: value}
    return {name: _plain(value, name) for name, value in values.items()}


def script_of(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Return the script that calls the function on the driver and keeps its result.

    The function keeps its line numbers from try to try, whatever the arguments.

    :raises ConfigurationError: the function's source is not available
    """
    definition = _definition(function)
    # __signature__ hides what the driver fills in; the code object does not.
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    filled = [name for name in SESSION_PARAMETERS if name in names]
    postponed = code.co_flags & __future__.annotations.compiler_flag
    head = f'"""The task function {function.__name__!r}, as its DAG has it."""\n'
    return (
        f"{head}"
        f"{'from __future__ import annotations' if postponed else ''}\n\n"
        f"{definition}\n\n"
        'if __name__ == "__main__":\n'
        "    from airflow_provider.spark.task_function import run_task_function\n\n"
        f"    run_task_function({function.__name__}, {filled!r}, {json.dumps(dict(arguments))!r})\n"
    )


def _definition(function: Callable[..., Any]) -> str:
    """Return the function's source without decorators, annotations and defaults, which may use the module's names."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ConfigurationError(
            f"The source of the task function {function.__name__!r} cannot be read: {error}.",
            remedy="Define it in the DAG's file or in a module that lies beside it as a file.",
        ) from error
    if source[:1].isspace():  # defined inside a function; multi-line strings would change if it were dedented
        source = f"if True:\n{source}"
    tree = ast.parse(source)
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    found.decorator_list, found.returns = [], None
    found.args.defaults = []
    found.args.kw_defaults = [None for _ in found.args.kw_defaults]
    for argument in (*found.args.args, *found.args.kwonlyargs, *filter(None, [found.args.kwarg])):
        argument.annotation = None
    return ast.unparse(found)


def _globals_read(code: CodeType) -> set[str]:
    """Return the names that a function, or code defined in it, reads from its module and does not set there."""
    codes = list(_codes(code))
    read, written = set(), set()
    for each in codes:
        own = {step.argval for step in dis.get_instructions(each) if step.opname == "STORE_NAME"}  # a class's body
        for step in dis.get_instructions(each):
            if step.opname == "LOAD_GLOBAL" or (step.opname == "LOAD_NAME" and step.argval not in own):
                read.add(step.argval)
            elif step.opname == "STORE_GLOBAL":
                written.add(step.argval)
    return read - written


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _plain(value: Any, where: str) -> Any:
    """Return *value* as plain JSON.

    :param where: its name, for messages
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigurationError(f"The argument {where} has the key {key!r}, which is no text.", remedy=_PLAIN)
        return {key: _plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_plain(each, f"{where}[{index}]") for index, each in enumerate(value)]
    raise ConfigurationError(
        f"The argument {where} is a {type(value).__name__}, which cannot go to the driver.",
        remedy=f"{_PLAIN} For dates there are texts such as '{{{{ ds }}}}'.",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
