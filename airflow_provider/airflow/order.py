"""The order that a trigger receives and the outcome that it returns: versioned JSON values in Airflow's database.

Both outlive a release of this package: one release may defer a task and the next one resume it. So keys are only added
and never change their meaning, a missing key has a default, and an unknown key is ignored. Neither holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from airflow_provider.airflow.masking import masked
from airflow_provider.core.errors import ConfigurationError

VERSION = 1

FINISHED = "finished"
FAILED = "failed"
SILENT = "silent"
"""The driver's heartbeat has stopped, or its process is gone; the worker may find out that it lives after all."""
LOST = "lost"
"""The driver has ended before the job did: it was fenced, by somebody who runs nothing."""
UNCLAIMED = "unclaimed"
"""No driver has claimed the job in time; the worker may ask the cluster manager why."""
UNREADABLE = "unreadable"
"""The event store cannot be read; the driver goes on."""


@dataclass(frozen=True)
class Application:
    """The driver's identity in the cluster manager, as far as it is known.

    :ivar manager: ``yarn`` or ``k8s``; empty text if unknown
    :ivar external_id: application or ``namespace:pod``
    :ivar conn_id: the ``spark`` connection
    """

    manager: str = ""
    external_id: str = ""
    conn_id: str = ""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Application:
        """Read what any release wrote; unknown keys are ignored."""
        names = {item.name for item in fields(cls)}
        return cls(**{name: str(value) for name, value in values.items() if name in names})


@dataclass(frozen=True)
class Order:
    """One job to follow.

    :ivar job: see :class:`airflow_provider.core.job.JobId`
    :ivar recovery_conn_id: the connection to the event store
    :ivar settings: the task's own store settings, over the connection's: names and addresses, never credentials
    :ivar epoch: the attempt to follow; 0 for one that has not claimed the job yet
    :ivar after: newest epoch at the time of the submission
    :ivar timeout: minimum seconds without a heartbeat change before the driver counts as lost
    :ivar pause: seconds between two looks
    :ivar deployment: the Airflow deployment; claims of other deployments' drivers are not followed
    :ivar claim_within: seconds after which the trigger reports that nobody has claimed the job
    """

    job: str
    event_store: str
    recovery_conn_id: str = "spark_recovery_default"
    settings: dict[str, str] = field(default_factory=dict)
    epoch: int = 0
    after: int = 0
    timeout: float = 30.0
    pause: float = 15.0
    claim_within: float = 60.0
    deployment: str = ""
    application: Application = field(default_factory=Application)

    def to_kwargs(self) -> dict[str, Any]:
        """Return plain values, for Airflow's database."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> Order:
        """Read what :meth:`to_kwargs` of any release wrote.

        :raises ConfigurationError: it lacks the job or its store
        """
        known = {name: kwargs[name] for name in (item.name for item in fields(cls)) if name in kwargs}
        if not known.get("job") or not known.get("event_store"):
            raise ConfigurationError("The trigger is not told which job to follow.", remedy="Clear the task.")
        application = Application.from_mapping(known.pop("application", {}))
        return cls(**known, application=application)


@dataclass(frozen=True)
class Outcome:
    """How the followed attempt ended.

    :ivar kind: one of the constants above
    :ivar epoch: the attempt; 0 if none has claimed the job
    :ivar beat: number of a silent driver's last heartbeat; -1 if unknown
    """

    kind: str
    epoch: int
    message: str = ""
    beat: int = -1

    def to_payload(self) -> dict[str, Any]:
        """Return the payload of a trigger's event, for Airflow's database."""
        return {"version": VERSION, **asdict(self), "message": masked(self.message)}

    @classmethod
    def from_payload(cls, payload: Any) -> Outcome:
        """Read what :meth:`to_payload` of any release wrote; anything else counts as lost."""
        if not isinstance(payload, Mapping):
            return cls(LOST, 0, f"the trigger answered {payload!r}")
        epoch, beat = payload.get("epoch"), payload.get("beat")
        return cls(
            str(payload.get("kind", LOST)),
            epoch if isinstance(epoch, int) else 0,
            str(payload.get("message", "")),
            beat if isinstance(beat, int) else -1,
        )
