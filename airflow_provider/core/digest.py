"""Hash texts for identities."""

from __future__ import annotations

import hashlib


def digest(*texts: str) -> str:
    """Return the SHA-256 of *texts*, in hexadecimal; the boundaries between texts count."""
    sha = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "big") + data)
    return sha.hexdigest()
