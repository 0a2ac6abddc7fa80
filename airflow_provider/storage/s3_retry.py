"""The retry policy for all requests to S3. botocore's own retries are switched off (see ``s3``).

Repeats what a second request can fix: no answer, a broken connection, 500, 502, 503, 504, throttling, and 409, which S3
returns for one of two concurrent conditional writes. Does not repeat any other answer, because it would be the same
again.
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
    """Exponential pauses, half of them random, so that many clients that a store has slowed down do not all return at
    once. With the client's timeouts, a call ends after at most about 30 s.

    :ivar attempts: maximum number of requests, including the first one
    :ivar first_pause: maximum seconds before the second request, doubled each time
    :ivar longest_pause: maximum seconds between two requests
    :ivar deadline: seconds after which no new request is sent
    """

    attempts: int = 6
    first_pause: float = 0.2
    longest_pause: float = 5.0
    deadline: float = 15.0

    def call(self, request: Callable[[], T]) -> T:
        """Return the result of *request*, repeating it as long as that may help; raise its last error."""
        return tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self.attempts) | tenacity.stop_before_delay(self.deadline),
            wait=tenacity.wait_exponential(multiplier=self.first_pause / 2, max=self.longest_pause / 2)
            + tenacity.wait_random_exponential(multiplier=self.first_pause / 2, max=self.longest_pause / 2),
            retry=tenacity.retry_if_exception(worth_repeating),
            before_sleep=lambda _: count_repeated(),
            reraise=True,
        )(request)
