"""What an Airflow deployment is called if the option ``deployment`` does not say it.

It has to be the same on all of a deployment's workers for as long as its jobs last, and another one in each other
deployment. Airflow has no id of that kind; the address of its API server, ``[api] base_url``, is as near as its
configuration comes. It is no secret: what a URL may hold of one stays behind.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import conf


def deployment_name() -> str:
    """Return host, port and path of the API server; empty text where Airflow does not say more than ``localhost``."""
    said = str(conf.get("api", "base_url", fallback="") or "")
    try:
        url = urlsplit(said)
        host, port = url.hostname or "", url.port
    except ValueError:
        return ""
    if not host or _is_everywhere(host):
        return ""
    name = f"[{host}]" if ":" in host else host
    return f"{name}:{port}{url.path.rstrip('/')}" if port else f"{name}{url.path.rstrip('/')}"


def _is_everywhere(host: str) -> bool:
    """Whether each machine means itself by it."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
