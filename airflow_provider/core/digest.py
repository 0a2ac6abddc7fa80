"""The one way in which texts are hashed for identities."""

from __future__ import annotations

import hashlib


def digest(*texts: str) -> str:
    """Return a SHA-256 in hexadecimal over *texts*, which cannot run into one another."""
    sha = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "big") + data)
    return sha.hexdigest()
