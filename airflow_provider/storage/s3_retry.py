"""The one retry policy for requests to S3. botocore's own retries are switched off (see ``s3``).

Repeated: what a second request can cure (no answer, a broken connection, 500, 502, 503, 504, throttling, and 409, with
which S3 answers one of two conditional writes that meet). Not repeated: every other answer, because it would be the
same again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import tenacity
from botocore import exceptions as boto

from airflow_provider.storage.object_store import count_repeated

T = TypeVar("T")

_CODES = {
    "BadDigest",
    "ConditionalRequestConflict",
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "ThrottlingException",
    "TooManyRequests",
    "XAmzContentSHA256Mismatch",
}
_STATUSES = {429, 500, 502, 503, 504}
_NO_ANSWER = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, boto.ChecksumError)


def worth_repeating(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, boto.SSLError):
        return False
    if isinstance(error, boto.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status in _STATUSES or error.response.get("Error", {}).get("Code") in _CODES
    return isinstance(error, _NO_ANSWER)


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential pauses, of which chance decides one half: many that a store has slowed down at once do not come back
    at once. With the client's time-outs a call ends after at most about 30 s.

    :ivar attempts: requests in all, the first one included
    :ivar first_pause: most seconds before the second request, doubled each time
    :ivar longest_pause: most seconds between two requests
    :ivar deadline: seconds after which no new request is sent
    """

    attempts: int = 6
    first_pause: float = 0.2
    longest_pause: float = 5.0
    deadline: float = 15.0

    def call(self, request: Callable[[], T]) -> T:
        """Return what *request* returns, repeating it as long as that may help; raises its last error."""
        return tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self.attempts) | tenacity.stop_before_delay(self.deadline),
            wait=tenacity.wait_exponential(multiplier=self.first_pause / 2, max=self.longest_pause / 2)
            + tenacity.wait_random_exponential(multiplier=self.first_pause / 2, max=self.longest_pause / 2),
            retry=tenacity.retry_if_exception(worth_repeating),
            before_sleep=lambda _: count_repeated(),
            reraise=True,
        )(request)
