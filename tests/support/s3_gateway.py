"""A real S3 server for tests: Ceph's object gateway on loopback, with its objects in memory.

One monitor, one memory-backed OSD and one radosgw, each a child of this process, in a temporary directory and on free
ports. Ready after one to two seconds; nothing outlives the process, not even if it is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import boto3

PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
INSTALL = "apt-get install --no-install-recommends radosgw ceph-mon ceph-osd ceph-common"
REQUIRED = "SPARK_RECOVERY_REQUIRE_GATEWAY"
"""Set to 1 where the gateway must be there, so that its absence fails the tests instead of skipping them."""

_START_TIMEOUT = 120.0
_CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{mon_port}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = {osd_ports[0]}
ms bind port max = {osd_ports[1]}
auth cluster required = none
auth service required = none
auth client required = none
# The default, "secure", needs keys, and would wait for them for ever.
ms mon client mode = crc
keyring = /dev/null
admin socket =
run dir = {directory}
log file = {directory}/log/$name.log
paxos propose interval = 0.05
mon data avail crit = 1
mon allow pool size one = true
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
[mon.a]
mon data = {directory}/mon
[osd.0]
osd data = {directory}/osd
osd objectstore = memstore
memstore device bytes = {memory}
[client.rgw.0]
rgw data = {directory}/rgw
# What is deleted or written over goes at once: a benchmark's objects would fill the memory.
rgw gc obj min wait = 2
rgw gc processor period = 2
rgw gc processor max time = 60
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
"""


@dataclass(frozen=True)
class S3Server:
    """Where a server for tests is and who may use it."""

    endpoint: str
    access_key: str
    secret_key: str
    configuration: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to be let in; the endpoint is an option of its own."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @functools.cache  # noqa: B019  there are two servers
    def session(self) -> boto3.Session:
        return boto3.Session(self.access_key, self.secret_key, region_name="us-east-1")

    @functools.cache  # noqa: B019
    def create_bucket(self, name: str) -> str:
        """Create a bucket; again is harmless. Returns its name."""
        client = self.session().client("s3", endpoint_url=self.endpoint)
        with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=name)
        return name


class GatewayFailed(Exception):
    """The gateway did not come up."""


def missing_programs() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program) is None]


@contextlib.contextmanager
def s3_gateway(*, memory_gib: int = 2) -> Iterator[S3Server]:
    """Run a gateway.

    :param memory_gib: room for objects; when it is full, requests hang
    :raises GatewayFailed: it did not come up; the message ends with what its programs said
    """
    directory = Path(tempfile.mkdtemp(prefix="s3-gateway-"))
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        yield _start(directory, daemons, memory_gib)
    finally:
        for daemon in reversed(daemons):  # its state is thrown away: no need to be gentle
            daemon.kill()
            daemon.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _start(directory: Path, daemons: list[subprocess.Popen[bytes]], memory_gib: int) -> S3Server:
    for name in ("osd", "rgw", "log"):
        (directory / name).mkdir()
    port, mon_port, first = free_port(), free_port(), free_port()
    configuration = directory / "ceph.conf"
    fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
    configuration.write_text(
        _CONFIGURATION.format(
            fsid=fsid,
            mon_port=mon_port,
            osd_ports=(min(first, 65000), min(first, 65000) + 500),
            directory=directory,
            memory=memory_gib << 30,
            port=port,
        )
    )
    log = (directory / "log" / "programs").open("wb")
    conf = ["-c", str(configuration)]
    monmap = str(directory / "monmap")

    def daemon(*command: str) -> None:
        daemons.append(
            subprocess.Popen(
                [*command, *conf, "-f"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        )

    try:
        _run(log, ["monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon_port}]", monmap])
        _run(log, ["ceph-mon", *conf, "--mkfs", "-i", "a", "--monmap", monmap])
        daemon("ceph-mon", "-i", "a")
        _run(log, ["ceph", *conf, "osd", "new", osd])
        _run(log, ["ceph-osd", *conf, "-i", "0", "--mkfs", "--osd-uuid", osd])
        daemon("ceph-osd", "-i", "0")
        user = ["user", "create", "--uid=test", "--display-name=test"]
        _run(log, ["radosgw-admin", *conf, *user, "--access-key=testaccess", "--secret-key=testsecret"])
        daemon("radosgw", "-n", "client.rgw.0")
        deadline = time.monotonic() + _START_TIMEOUT
        while not _answers(port):
            if any(child.poll() is not None for child in daemons) or time.monotonic() > deadline:
                raise GatewayFailed("the gateway does not answer")
            time.sleep(0.05)
    except (GatewayFailed, subprocess.SubprocessError) as error:
        log.flush()
        said = Path(log.name).read_text(errors="replace")[-3000:]
        raise GatewayFailed(f"Ceph's S3 gateway did not start: {error}\n{said}") from error
    finally:
        log.close()
    return S3Server(f"http://127.0.0.1:{port}", "testaccess", "testsecret", str(configuration))


def another_user(server: S3Server, name: str) -> S3Server:
    """Return the same gateway for a new user, who may do nothing but what bucket policies allow."""
    user = ["user", "create", f"--uid={name}", f"--display-name={name}", f"--access-key={name}", f"--secret-key={name}"]
    with open(os.devnull, "wb") as log:
        _run(log, ["radosgw-admin", "-c", server.configuration, *user])
    return S3Server(server.endpoint, name, name, server.configuration)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(log: IO[bytes], command: Sequence[str]) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=_START_TIMEOUT)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def die_with_parent() -> None:
    """End the daemon when this process ends, however that comes about (prctl(2), PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)
