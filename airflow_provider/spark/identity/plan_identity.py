"""The identity of a plan, read from the JVM's objects: two plans share one only if they mean the same.

A plan is walked node by node, including plans inside expressions. Everything else that a node holds is serialized by
Java, in one call for the whole plan, and read and digested here (:mod:`airflow_provider.spark.jvm.value_digest`), so
that all data counts. What a leaf reads (:mod:`airflow_provider.spark.jvm.sources`) and what a Python function does
(:mod:`airflow_provider.spark.identity.functions`) have identities of their own. A recovery point in the plan represents
itself: nothing below it is examined.

In a plan as it is, expression ids are numbered in the order in which they appear. In a canonical plan, as adaptive
execution keeps it, ids are positions and count. The two are never equal. Nothing is computed, and the session is not
touched.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core import explain
from airflow_provider.core.digest import digest
from airflow_provider.spark.identity.functions import FunctionIdentity
from airflow_provider.spark.jvm.determinism import (
    CLOCK_TEXT,
    IN_ORDER,
    NO_ORDER,
    NOT_DETERMINISTIC,
    OF_FUNCTIONS,
    OF_PHYSICAL_PLANS,
    READS_CLOCK,
)
from airflow_provider.spark.jvm.java_stream import JavaClass, JavaObject, Unreadable, Value, read_stream
from airflow_provider.spark.jvm.known_classes import KNOWN_PACKAGES, OPAQUE, UNKNOWN_PACKAGES
from airflow_provider.spark.jvm.plan_walk import ClassShape, Item, Number, Open, PlanWalk, Serialized, shapes_of
from airflow_provider.spark.jvm.queries import current_user
from airflow_provider.spark.jvm.sources import Source, lineage
from airflow_provider.spark.jvm.value_digest import ValueDigest
from airflow_provider.spark.jvm.value_facts import seed_in

if TYPE_CHECKING:
    from airflow_provider.spark.identity.known import Draws, Known

log = logging.getLogger(__name__)

_NOT_SERIALIZABLE = re.compile(r"NotSerializableException: ([\w.$]+)")
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_SEEDS = {
    "Rand": "child",
    "Randn": "child",
    "RandStr": "seedExpression",
    "Uniform": "seedExpression",
    "Shuffle": "randomSeed",
    "Uuid": "randomSeed",
}
"""Random expressions → the field that holds their seed."""


@dataclass(frozen=True)
class PythonFunction:
    """A Python function in a plan, under the name that Spark shows.

    :ivar deterministic: whether it is not marked as not deterministic and reaches no source of chance
    """

    name: str
    identity: FunctionIdentity
    deterministic: bool


@dataclass
class PlanDescription:
    """Everything known of a plan.

    :ivar plan: digest of its structure, without the following
    :ivar functions: its Python functions, in the order of the plan; then the user's own types, by which Python makes
        values for these
    :ivar sources: what its leaves read, in the order of the plan
    :ivar upstream: tokens of the recovery points that it reads, in the order of the plan
    :ivar session: facts of the session that its expressions ask for, such as the current user
    :ivar opaque: reasons why nothing may be reused; empty if everything is described
    :ivar not_deterministic: what makes the plan's rows vary from run to run; empty if nothing does
    :ivar cached: whether it reads what the script has cached; what was cached is described, too
    :ivar literals: texts and numbers in its expressions
    :ivar of_each_run: the digest without literals that mark this attempt; empty if none do, or nothing was asked. If
        only the rows of a source do, it is the full digest.
    """

    plan: str = ""
    functions: list[PythonFunction] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    upstream: list[str] = field(default_factory=list)
    session: dict[str, str] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    not_deterministic: list[str] = field(default_factory=list)
    cached: bool = False
    literals: frozenset[str | int | float] = frozenset()
    of_each_run: str = ""


def read_plan(
    spark: Any,
    known: Known,
    plan: Any,
    *,
    draws: Draws | None = None,
    of_this_run: Callable[[str | int | float], bool] | None = None,
    tasks: bool = False,
) -> PlanDescription:
    """Return the description of a logical or physical plan, canonical or not.

    The session must be active in this thread.

    :param known: what was learnt of the script
    :param draws: of these, a draw that the script left to Spark counts by its position instead of its seed. Plans must
        then be read in the order of the script.
    :param of_this_run: whether a text or a number in the plan marks this attempt alone; ``None`` if not needed
    :param tasks: whether only what the tasks of an exchange run is described: nothing below the exchanges that they
        read, except for those of subqueries
    """
    return _Reading(spark, known, draws).read(plan, of_this_run, tasks=tasks)


class _Reading:
    """Reads one plan."""

    def __init__(self, spark: Any, known: Known, draws: Draws | None) -> None:
        self._name_draws = draws is not None
        self._draws = draws or known.draws
        self._spark = spark
        self._known = known
        self._application = known.application
        self._plan = PlanWalk(spark, self._application.local_data, self._name_seed, self._described)
        self._values = ValueDigest(self._shape_of, self._seeds_of)
        self._classes: list[JavaClass] = []

    def read(
        self, plan: Any, of_this_run: Callable[[str | int | float], bool] | None, *, tasks: bool
    ) -> PlanDescription:
        try:
            written = self._plan.walk(plan, tasks=tasks)
        except Exception as error:
            log.debug("A plan cannot be looked at", exc_info=error)
            match = _NOT_SERIALIZABLE.search(str(error))
            what = f"it holds a {match[1]}" if match else "it is nested too deeply, or cannot be serialized"
            return PlanDescription(digest("opaque"), opaque=[f"{what}, which recovery cannot look at"])
        found = PlanDescription(
            sources=self._plan.sources,
            upstream=self._plan.upstream,
            opaque=[*self._plan.opaque, *(source.opaque for source in self._plan.sources if source.opaque)],
            cached=self._plan.cached,
        )
        try:
            values = self._serialized()
            found.plan = self._digest(written, values, self._values)
            if of_this_run is not None and any(map(of_this_run, self._values.noted.literals)):
                unmarked = ValueDigest(self._shape_of, self._seeds_of, of_this_run)
                found.of_each_run = self._digest(written, values, unmarked)
            elif of_this_run is not None and any(source.of_each_run for source in found.sources):
                found.of_each_run = found.plan
        except Unreadable as error:
            found.opaque.append(str(error))
            found.plan = digest("opaque")
        self._judge(found)
        return found

    # -- the values ------------------------------------------------------------------------------------------------

    def _serialized(self) -> list[Value]:
        """Return the contents of the plan's nodes, in the order in which they were set aside."""
        (read,) = read_stream(self._plan.serialized, self._classes)
        if not isinstance(read, JavaObject) or len(read.parts[-1].extra) != self._plan.count + 1:
            raise Unreadable("the plan's values cannot be read")
        return read.parts[-1].extra[1:]

    def _digest(self, written: list[Item], values: list[Value], digests: ValueDigest) -> str:
        """Return the digest of a plan: of its parts, of theirs, and so on down."""
        stack: list[tuple[Open, list[str]]] = [(Open("plan"), [])]
        for item in written:
            if isinstance(item, Open):
                stack.append((item, []))
                continue
            if isinstance(item, Serialized):
                part = digest("values", digests.digest(values[item.index], positional=item.positional).hex())
            elif isinstance(item, Number):
                part = digest("number", str(digests.number("counted", str(item.number).encode())))
            elif isinstance(item, str):
                part = digest("text", item)
            else:
                opened, parts = stack.pop()
                if opened.order == "sorted":
                    parts.sort()
                elif opened.order == "turned":
                    parts[:2] = parts[1::-1]
                part = digest("group", opened.text, *parts)
            stack[-1][1].append(part)
        return digest(*stack[0][1])

    def _shape_of(self, name: str) -> ClassShape:
        """Return what the JVM says of a class; asked once, with all other Spark classes in the plan."""
        shapes = self._application.shapes
        if name not in shapes:
            of_spark = {each.name for each in self._classes if each.name.startswith("org.apache.spark.")}
            shapes |= shapes_of(self._spark, sorted({name, *of_spark} - shapes.keys()))
        return shapes[name]

    def _name_seed(self, seed: int | None) -> str:
        """Return what represents the seed of a sample."""
        if seed is None:
            return self._draws.unnamed()
        return self._draws.name(seed, left_open=False) if self._name_draws else f"seed {seed}"

    def _seeds_of(self, value: JavaObject) -> dict[str, str]:
        """Return the field of an expression that holds a drawn seed, with what represents it."""
        holder = _SEEDS.get(value.type.name.removeprefix(_EXPRESSIONS))
        if holder is None or not self._name_draws:
            return {}
        seed = seed_in(value.get(holder))
        hidden = any(name == "hideSeed" for _, name in value.type.fields)
        left_open = value.get("hideSeed") == b"\1" if hidden else True
        if seed is None:
            return {}
        return {holder: self._draws.name(seed, left_open=left_open)}

    def _described(self, source: Source) -> Source:
        """Return a source without a version with an identity: the version given for all of them, or its position in the
        script among those that ask for the same.
        """
        if not source.opaque:
            return source
        asked = source.asked or self._asked_of_rdd(source.made)
        version = self._known.source_version
        if asked and version:
            return Source(f"{explain.TABLE} without a version of its own", version, digest("version", version, asked))
        if asked and self._name_draws:
            place = self._draws.place(self._spark, asked, source.made)
            return replace(source, asked=asked, identity=digest("place", asked, str(place)))
        return replace(source, asked="")

    def _asked_of_rdd(self, rdd: Any) -> str:
        """Return what an RDD is made of; empty if that is unknown."""
        try:
            made = lineage(self._spark, rdd) if rdd is not None else None
        except Exception as error:
            log.debug("An RDD cannot be looked at", exc_info=error)
            return ""
        parts: list[str] = []
        for kind, value in made or ():
            function = self._application.functions.read(value) if kind == "PythonRDD" else None
            if function is not None and (function.opaque or function.draws):
                return ""
            parts += [kind, function.digest if function is not None else hashlib.sha256(value).hexdigest()]
        return digest("rdd", *parts) if parts else ""

    # -- what follows ----------------------------------------------------------------------------------------------

    def _judge(self, found: PlanDescription) -> None:
        """Classify every class in the plan: whether it is known, and whether it is deterministic."""
        noted = self._values.noted
        found.opaque += noted.unknown
        found.literals = frozenset(noted.literals)
        names = set()
        for class_name in sorted(self._plan.classes):
            if not class_name.startswith(KNOWN_PACKAGES) or class_name.startswith(UNKNOWN_PACKAGES):
                found.opaque.append(f"{class_name} is not known to recovery")
        for class_name in sorted(self._plan.classes | noted.classes):
            name = class_name.rsplit(".", 1)[-1].rstrip("$").removesuffix("Exec")
            names.add(name)
            if name in OPAQUE:
                found.opaque.append(f"{OPAQUE[name]} ({name}) cannot be fingerprinted")
            why = NOT_DETERMINISTIC.get(name) or OF_PHYSICAL_PLANS.get(name)
            if why:
                found.not_deterministic.append(f"{name}: {why}")
        if noted.counts_rows:
            found.not_deterministic.append(IN_ORDER)
        if noted.no_order:
            found.not_deterministic.append(NO_ORDER)
        if any(isinstance(each, str) and CLOCK_TEXT.fullmatch(each) for each in found.literals):
            found.not_deterministic.append(READS_CLOCK)
        if noted.varying:
            found.not_deterministic.append("Invoke: the method says that it is not deterministic")
        types = [(*each, True) for each in sorted(noted.types.items())] if noted.functions else []
        for name, command, deterministic in (*noted.functions, *types):
            identity = self._application.functions.read(command)
            function = PythonFunction(name, identity, deterministic and not identity.draws)
            found.functions.append(function)
            found.opaque += [f"function {name!r}: {reason}" for reason in function.identity.opaque]
            if not function.deterministic:
                draws = ", ".join(function.identity.draws)
                why = f"it reaches {draws}" if deterministic else "it is marked so"
                found.not_deterministic.append(f"{OF_FUNCTIONS} {name!r} is not deterministic: {why}")
        if "CurrentUser" in names:
            found.session["current user"] = current_user(self._spark)
        if names & {"CurrentDatabase", "CurrentCatalog", "CurrentNamespace", "CurrentPath"}:
            catalog = self._spark.catalog
            found.session["current database"] = f"{catalog.currentCatalog()}.{catalog.currentDatabase()}"
