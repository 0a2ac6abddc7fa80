"""Run generated scripts in all modes, and say where one of them is not plain Spark."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from airflow_provider.core import faults
from tests.differential.bundle import Bundle
from tests.differential.event_log import Run, plan_differences, read_events
from tests.differential.processes import Ended, Folder, Stop
from tests.differential.records import Difference, differences, read

MOMENT = r'r\.moment\("([^"]*)"\)'
MORE_PLAIN_RUNS = 3
"""How often plain Spark runs again to see whether a plan's difference is its own."""
SETTLED = 1.0
"""Seconds for which a driver waits where it is killed between two actions: what was kept meanwhile has arrived."""
FAULTS = (
    faults.AFTER_PARTITION_PUT,
    faults.AFTER_PARTITION_EVENT,
    faults.AFTER_FLUSH,
    faults.AFTER_SINK_COMMIT,
    faults.BEFORE_FLUSH,
    faults.AFTER_SNAPSHOT,
)


@dataclass(frozen=True)
class Finding:
    """A mode of a bundle in which cases differ from plain Spark, or which did not end well."""

    bundle: Bundle
    mode: str
    found: tuple[Difference, ...]
    log: str = ""

    def cases(self) -> set[str]:
        return {difference.case for difference in self.found}

    def text(self) -> str:
        """All that is needed to make it a fixed case."""
        texts = {case.name: case.text() for case in self.bundle.cases}
        lines = [f"bundle {self.bundle.number}, {self.mode}, settings {self.bundle.settings}"]
        for name in sorted(self.cases()):
            lines += [texts.get(name, name), *(str(one) for one in self.found if one.case == name), ""]
        if self.log:
            lines += ["log:", self.log[-3000:]]
        return "\n".join(lines)


@dataclass
class Outcome:
    """What a run has done and found."""

    cases: int = 0
    attempts: int = 0
    kills: int = 0
    struck: int = 0
    queries: int = 0
    run_again: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def differing(self) -> Counter[str]:
        """Cases that differ, by mode and by whether it is in what they find or only in the session's state."""
        found: Counter[str] = Counter()
        for finding in self.findings:
            mode = finding.mode.split(" (")[0]
            visible = {one.case for one in finding.found if one.key != "state"}
            found[f"{mode}, results"] += len(visible)
            found[f"{mode}, state only"] += len(finding.cases() - visible)
            found[f"{mode}, ended badly"] += bool(finding.log)
        return +found


@dataclass
class Differential:
    """Runs bundles below a folder.

    :param say: is called with a line for each step
    :param keep: leave the folders of bundles in which nothing was found, too
    :param python: that has the version of Spark to run
    """

    folder: Path
    data: Path
    seed: int
    say: Callable[[str], None] = lambda _: None
    keep: bool = False
    python: str = sys.executable
    outcome: Outcome = field(default_factory=Outcome)

    def plain_twice(self, bundle: Bundle) -> None:
        """The harness's own noise: plain Spark against plain Spark."""
        home = self._home(bundle)
        expected = self._folder(home, "plain").run(recovered=False)
        again = self._folder(home, "plain-again").run(recovered=False)
        self._compare(bundle, "plain again", expected, again)
        self._plans(bundle, "plans of plain again", expected, again)
        cores = Random(f"cores {self.seed} {bundle.number}").choice([1, 3])
        other = self._folder(home, f"plain-{cores}").run(recovered=False, cores=cores)
        self._compare(bundle, f"plain on {cores}", expected, other, same_layout=False)
        self._end(bundle, home)

    def compare(self, bundle: Bundle, kills: int = 0, stops: Sequence[Stop] = (), through: bool = True) -> None:
        """Plain, recovered, and recovered, killed and run again: *kills* times at moments of chance, or at *stops*.

        :param through: whether it is also compared where nobody kills it
        """
        home = self._home(bundle)
        plain = self._folder(home, "plain").run(recovered=False)
        if plain.code != 0:
            self._add(Finding(bundle, "plain", (), plain.log))
            return
        if through:
            recovered = self._folder(home, "recovered").run(recovered=True)
            self._compare(bundle, "recovered", plain, recovered)
            self._plans(bundle, "plans of a first attempt", plain, recovered, again=home)
        random = Random(f"kills {self.seed} {bundle.number}")
        if kills:
            stops = _stops(random, bundle, plain, kills)
        if stops:
            self._killed(bundle, plain, stops, random, home, reached=not kills)
        self._end(bundle, home)

    def broken(self, bundle: Bundle, wrapper: tuple[str, ...]) -> None:
        """Plain Spark against an engine that is broken on purpose, to see that it is noticed."""
        home = self._home(bundle)
        plain = self._folder(home, "plain").run(recovered=False)
        broken = self._folder(home, "broken")
        broken.wrapper = wrapper
        self._compare(bundle, "broken", plain, broken.run(recovered=False))

    def _killed(
        self, bundle: Bundle, plain: Ended, stops: Sequence[Stop], random: Random, home: Path, reached: bool
    ) -> None:
        """Attempts that are killed one after another, each further on, and one to the end.

        :param reached: whether each driver must reach the place where it is to be killed
        """
        folder = self._folder(home, "killed")
        other_cores = random.random() < 0.35
        cores = 2
        begun: set[str] = set()
        done: list[str] = []
        for stop in stops:
            ended = folder.run(recovered=True, cores=cores, stop=stop)
            self.outcome.attempts += 1
            begun |= set(ended.progress)
            if ended.code == 0:  # through before it could be killed: the next attempt starts afresh
                if reached:
                    self._add(Finding(bundle, f"not reached ({stop})", (), "Its case has raised something before."))
                shutil.rmtree(folder.path, ignore_errors=True)
                begun.clear()
                continue
            done.append(str(stop))
            self.outcome.kills += 1
            self.outcome.struck += bool(ended.struck)
            cores = random.choice([1, 3]) if other_cores else 2
        self.outcome.run_again |= begun
        last = folder.run(recovered=True, cores=cores)
        mode = f"killed (on {cores} cores; {'; '.join(done)})"
        self._compare(bundle, mode, plain, last, begun=begun, same_layout=not other_cores)

    def _compare(
        self, bundle: Bundle, mode: str, plain: Ended, other: Ended, begun: Iterable[str] = (), same_layout: bool = True
    ) -> None:
        self.outcome.attempts += 1
        found = differences(read(plain.records), read(other.records), begun=set(begun), same_layout=same_layout)
        self.say(
            f"bundle {bundle.number} {mode}: {len(bundle.cases)} cases, {other.seconds:.0f} s "
            f"(plain {plain.seconds:.0f} s), exit {other.code}, {len({one.case for one in found})} differ"
        )
        if found or other.code != 0:
            self._add(Finding(bundle, mode, tuple(found), other.log if other.code else ""))

    def _plans(self, bundle: Bundle, mode: str, plain: Ended, other: Ended, again: Path | None = None) -> None:
        """Executed plans, jobs, stages, tasks and bytes shuffled, from Spark's event logs.

        :param again: where plain Spark runs again if there are differences, to see whether they are its own
        """
        one = read_events(plain.events)
        two, more = read_events(other.events), list[Run]()
        found = plan_differences(one, two)
        while found and again and len(more) < MORE_PLAIN_RUNS:
            folder = self._folder(again, f"plain-again-{len(more)}")
            more.append(read_events(folder.run(recovered=False).events))
            found = plan_differences(one, two, again=more)
        self.outcome.queries += len(one.queries)
        self.say(f"bundle {bundle.number} {mode}: {len(one.queries)} queries, {len(found)} differences")
        if found:
            self._add(Finding(bundle, mode, tuple(Difference("plans", text, None, None) for text in found)))

    def _add(self, finding: Finding) -> None:
        self.outcome.findings.append(finding)
        folder = self.folder / "findings"
        folder.mkdir(exist_ok=True)
        name = f"{finding.bundle.number:03}-{finding.mode.split(' (')[0].replace(' ', '-')}.txt"
        (folder / name).write_text(finding.text(), encoding="utf-8")

    def _home(self, bundle: Bundle) -> Path:
        home = self.folder / f"{bundle.number:03}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "script.py").write_text(bundle.script(), encoding="utf-8")
        return home

    def _folder(self, home: Path, name: str) -> Folder:
        return Folder(home / name, home / "script.py", self.data, self.python)

    def _end(self, bundle: Bundle, home: Path) -> None:
        self.outcome.cases += len(bundle.cases)
        if not self.keep and not any(finding.bundle is bundle for finding in self.outcome.findings):
            shutil.rmtree(home, ignore_errors=True)


def moments(bundle: Bundle) -> list[Stop]:
    """All places that the cases of a script name for a kill."""
    return [Stop(f"{case.name}/{name}", SETTLED) for case in bundle.cases for name in re.findall(MOMENT, case.body)]


def _stops(random: Random, bundle: Bundle, plain: Ended, kills: int) -> list[Stop]:
    """Moments in different cases, in the order in which the script comes to them; a few are fault points."""
    names = [case.name for case in bundle.cases]
    chosen = sorted(random.sample(range(len(names)), min(kills, len(names))))
    stops = []
    for place in chosen:
        named = re.findall(MOMENT, bundle.cases[place].body)
        if named and random.random() < 0.7:
            stops.append(Stop(f"{names[place]}/{random.choice(named)}", SETTLED))
        else:
            stops.append(Stop(names[place], random.uniform(0.05, 0.95) * plain.took(names[place])))
    if random.random() < 0.4:
        stops.insert(0, Stop(fault=f"{random.choice(FAULTS)}@{random.randint(1, 30)}"))
    return stops
