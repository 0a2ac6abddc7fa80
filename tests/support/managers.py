"""Small servers that answer as cluster managers do: YARN's ResourceManager and the API server of Kubernetes."""

from __future__ import annotations

import contextlib
import http.server
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.serving import serving


@dataclass
class ResourceManager:
    """Applications by id, each with state, final status and diagnostics, and which of them were killed.

    :ivar marks: tags of applications, separated by commas
    """

    applications: dict[str, tuple[str, str, str]]
    marks: dict[str, str] = field(default_factory=dict)
    address: str = ""
    killed: list[str] = field(default_factory=list)


@dataclass
class Kubernetes:
    """Pods as ``namespace/name`` with their phase, and which of them were deleted. One that runs succeeds when seen.

    :ivar environment: lets Airflow's client find the server
    :ivar marks: the label of pods by which their job is told
    :ivar replaced_when_seen: whoever has looked at a pod finds another one of the same name afterwards
    """

    pods: dict[str, str]
    marks: dict[str, str] = field(default_factory=dict)
    replaced_when_seen: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)


class _Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def resource_manager(applications: dict[str, tuple[str, str, str]]) -> Iterator[ResourceManager]:
    """Run a ResourceManager; an application that waits has succeeded when it is asked for the next time."""
    manager = ResourceManager(applications)

    class Handler(_Handler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[-1]
            state, final, diagnostics = applications[name]
            if state == "ACCEPTED":
                applications[name] = ("FINISHED", "SUCCEEDED", "")
            told = {"state": state, "finalStatus": final, "diagnostics": diagnostics}
            self.answer(200, {"app": {**told, "applicationTags": manager.marks.get(name, "")}})

        def do_PUT(self) -> None:
            name = self.path.split("/")[-2]
            manager.killed.append(name)
            applications[name] = ("KILLED", "KILLED", "")
            self.answer(202, {"state": "KILLED"})

    with serving(Handler) as manager.address:
        yield manager


@contextlib.contextmanager
def kubernetes(folder: Path, pods: dict[str, str]) -> Iterator[Kubernetes]:
    """Run an API server that knows *pods* and nothing else."""
    manager = Kubernetes(pods)

    class Handler(_Handler):
        def pod(self) -> str:
            parts = self.path.partition("?")[0].split("/")  # /api/v1/namespaces/<namespace>/pods/<name>
            return f"{parts[4]}/{parts[6]}"

        def do_GET(self) -> None:
            name = self.pod()
            if name not in pods:
                self.answer(404, {"kind": "Status", "status": "Failure", "code": 404})
                return
            labels = {"spark-role": "driver", "spark-recovery-job": manager.marks.get(name, "")}
            told = {"name": name, "uid": f"uid of {name}", "labels": labels}
            self.answer(200, {"kind": "Pod", "metadata": told, "status": {"phase": pods[name]}})
            if pods[name] == "Running":
                pods[name] = "Succeeded"

        def do_DELETE(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
            del self.headers["Content-Length"]
            uid = body.get("preconditions", {}).get("uid")
            if uid and manager.replaced_when_seen:
                self.answer(409, {"kind": "Status", "status": "Failure", "code": 409})
                return
            manager.deleted.append(self.pod())
            known = pods.pop(self.pod(), None)
            self.answer(200 if known else 404, {"kind": "Status", "status": "Success" if known else "Failure"})

    with serving(Handler) as address:
        configuration = folder / "kubeconfig.json"
        configuration.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": {"server": address}}],
                    "users": [{"name": "test", "user": {}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "current-context": "test",
                }
            )
        )
        manager.environment = {
            "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
            "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": str(configuration),
        }
        yield manager
