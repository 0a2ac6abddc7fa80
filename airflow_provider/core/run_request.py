"""The run request and the driver's command line: the only contract between Airflow's side and Spark's side.

The operator writes the arguments; the runner and ``spark-recovery run`` read them. They contain no secret, because
everybody on a machine can see command lines.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NoReturn

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.core.options import Option, RecoveryOptions, StorageOptions
from airflow_provider.core.redaction import SHORTEST, secrets_of

EXIT_FAILED = 1
"""The user's script failed; a retry may help."""
EXIT_CONFIGURATION = 2
"""Something is configured wrongly; nothing was run, a retry cannot help."""
EXIT_FENCED = 76
"""A newer attempt owns the job; this driver stopped and committed nothing."""


@dataclass(frozen=True)
class SecretPart:
    """The place of a secret in a script's arguments: the argument's index, from 0, and the span. Not secret itself."""

    argument: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.argument}:{self.start}-{self.end}"

    @classmethod
    def parse(cls, text: str) -> SecretPart:
        """Read what :meth:`__str__` wrote; :raises ValueError: it is something else."""
        argument, _, span = text.partition(":")
        start, _, end = span.partition("-")
        return cls(int(argument), int(start), int(end))


@dataclass(frozen=True)
class RunRequest:
    """What one driver has to run.

    :ivar event_store: ``s3://bucket/prefix`` or ``file:///path``
    :ivar application: the user's Python script
    :ivar arguments: its arguments
    :ivar fresh: reason for reusing nothing; empty text to resume
    :ivar previous_lost: newest epoch that the operator has watched and found lost; 0 if it has not looked
    :ivar previous_beat: number of that epoch's last heartbeat, 0 if there was none. If it has beaten since, it is
        watched again. -1 if the operator gave no number, in which case its judgement stands
    :ivar run: distinguishes the DAG run from others of its name (see :mod:`airflow_provider.core.job`); empty text if
        unknown
    :ivar series: shared by attempts that are automatic retries of one another; empty text if unknown
    :ivar automatic_retry: whether it continues the last attempt's series (only when not supervised)
    :ivar secret_parts: the parts of the arguments that Airflow masks
    :ivar supervised: the operator acknowledges success and releases the partitions; otherwise the runner does
    :ivar keep_partitions: leave the partitions in place after success (only when not supervised)
    """

    event_store: str
    job: JobId
    application: str
    arguments: tuple[str, ...] = ()
    options: RecoveryOptions = field(default_factory=RecoveryOptions)
    storage: StorageOptions = field(default_factory=StorageOptions)
    fresh: str = ""
    previous_lost: int = 0
    previous_beat: int = -1
    run: str = ""
    series: str = ""
    automatic_retry: bool = False
    secret_parts: tuple[SecretPart, ...] = ()
    supervised: bool = False
    keep_partitions: bool = False

    @property
    def by_hand(self) -> bool:
        """Whether a person started it without Airflow."""
        return not (self.supervised or self.series)

    @property
    def secrets(self) -> frozenset[str]:
        """The parts of the script's arguments that must not be recorded: named secrets, and what Airflow masks."""
        told = ((self.arguments[part.argument : part.argument + 1], part) for part in self.secret_parts)
        parts = {argument[part.start : part.end] for arguments, part in told for argument in arguments}
        return secrets_of({}, self.arguments) | {part for part in parts if len(part) >= SHORTEST}

    def to_arguments(self) -> list[str]:
        """Return the command line that :func:`parse_run_arguments` reads back."""
        # With "=", because a value, such as a DAG's id, may begin with "-".
        line = [f"--event-store={self.event_store}", f"--job-id={self.job}"]
        for group in (self.options, self.storage):
            defaults = type(group)()
            for name, value in group.to_mapping().items():
                if value != getattr(defaults, name):
                    line.append(f"--{name.replace('_', '-')}={value}")
        if self.fresh:
            line.append(f"--fresh={self.fresh}")
        if self.previous_lost:
            line.append(f"--previous-lost={self.previous_lost}")
        if self.previous_beat >= 0:
            line.append(f"--previous-beat={self.previous_beat}")
        if self.run:
            line.append(f"--dag-run={self.run}")
        if self.series:
            line.append(f"--series={self.series}")
        if self.automatic_retry:
            line.append("--automatic-retry")
        if self.secret_parts:
            line.append(f"--secret-parts={','.join(map(str, self.secret_parts))}")
        if self.supervised:
            line.append("--supervised")
        if self.keep_partitions:
            line.append("--keep-partitions")
        return [*line, self.application, *self.arguments]


FAILOVER_OPTIONS = ("failover_strategy", "restart_strategy")
"""Starts of the names of the options of failover inside the application."""


def add_store_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    """Add the options for the event store and its access.

    :param everything: show all options in the help, not only the common ones
    """
    parser.add_argument("--event-store", required=True, metavar="URI", help="s3://bucket/prefix or file:///path")
    group = parser.add_argument_group("object store")
    for name, declared in StorageOptions.declared().items():
        _add_option(group, name, declared, shown=everything or declared.common)


def add_run_arguments(parser: argparse.ArgumentParser, *, everything: bool = False) -> None:
    """Add all options of a run.

    :param everything: show all options in the help, not only the common ones
    """
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options and exit")
    add_store_arguments(parser, everything=everything)
    parser.add_argument(
        "--job-id",
        required=True,
        metavar="ID",
        help="names the job; the same id again resumes it ('/' separates parts)",
    )
    group = parser.add_argument_group("recovery")
    failover = parser.add_argument_group(
        "failover inside the application", "named as Flink's restart-strategy.*" if everything else None
    )
    for name, declared in RecoveryOptions.declared().items():
        own = failover if name.startswith(FAILOVER_OPTIONS) else group
        _add_option(own, name, declared, shown=everything or declared.common)
    group.add_argument(
        "--keep-partitions", action="store_true", help="Leave the stored partitions in place after success"
    )
    fresh = "Reuse nothing, for the reason given" if everything else argparse.SUPPRESS
    group.add_argument("--fresh", default="", metavar="REASON", help=fresh)
    group.add_argument("--previous-lost", type=int, default=0, metavar="EPOCH", help=argparse.SUPPRESS)
    group.add_argument("--previous-beat", type=int, default=-1, metavar="NUMBER", help=argparse.SUPPRESS)
    group.add_argument("--dag-run", default="", metavar="MARK", help=argparse.SUPPRESS)
    group.add_argument("--series", default="", metavar="NAME", help=argparse.SUPPRESS)
    group.add_argument(
        "--automatic-retry",
        action="store_true",
        help="Nobody has asked for new data: keep what was finished over sources that tell no version (JDBC, RDDs)"
        if everything
        else argparse.SUPPRESS,
    )
    group.add_argument("--secret-parts", type=_secret_parts, default=(), metavar="PARTS", help=argparse.SUPPRESS)
    group.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    # One positional for script and arguments: a separate one for the script would swallow a "--" among the arguments.
    parser.add_argument(
        "command", nargs=argparse.PARSER, metavar="app.py", help="your PySpark script and its arguments"
    )


def _secret_parts(text: str) -> tuple[SecretPart, ...]:
    return tuple(SecretPart.parse(part) for part in text.split(","))


def _add_option(group: argparse._ArgumentGroup, name: str, declared: Option, *, shown: bool) -> None:
    default = f" (default: {declared.default})" if declared.default else ""
    text = f"{declared.help}{default}".replace("%", "%%") if shown else argparse.SUPPRESS
    group.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar=declared.type.metavar, help=text)


class _HelpAll(argparse.Action):
    """Prints the help with all options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        full = argparse.ArgumentParser(prog=parser.prog, description=parser.description, epilog=parser.epilog)
        add_run_arguments(full, everything=True)
        full.print_help()
        parser.exit()


def storage_options(arguments: argparse.Namespace) -> StorageOptions:
    """Return the object store's options among parsed *arguments*."""
    return StorageOptions.from_mapping({item.name: getattr(arguments, item.name) for item in fields(StorageOptions)})


def run_request(arguments: argparse.Namespace) -> RunRequest:
    """Return the request that parsed *arguments* describe.

    :raises ConfigurationError: an option's value cannot be read
    """
    application, *rest = arguments.command[1:] if arguments.command[0] == "--" else arguments.command
    return RunRequest(
        event_store=arguments.event_store,
        job=JobId.parse(arguments.job_id),
        application=application,
        arguments=tuple(rest),
        options=RecoveryOptions.from_mapping(
            {item.name: getattr(arguments, item.name) for item in fields(RecoveryOptions)}
        ),
        storage=storage_options(arguments),
        fresh=arguments.fresh,
        previous_lost=arguments.previous_lost,
        previous_beat=arguments.previous_beat,
        run=arguments.dag_run,
        series=arguments.series,
        automatic_retry=arguments.automatic_retry,
        secret_parts=arguments.secret_parts,
        supervised=arguments.supervised,
        keep_partitions=arguments.keep_partitions,
    )


def parse_run_arguments(line: Sequence[str]) -> RunRequest:
    """Read a command line that :meth:`RunRequest.to_arguments` wrote.

    :raises ConfigurationError: it cannot be read
    """
    parser = _RaisingParser(prog="spark-recovery run", allow_abbrev=False)
    add_run_arguments(parser)
    return run_request(parser.parse_args(list(line)))


class _RaisingParser(argparse.ArgumentParser):
    """Raises on every error; ``exit_on_error=False`` still exits on a missing or an unknown argument."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(
            f"The command line cannot be read: {message}.", remedy="See spark-recovery run --help."
        )
