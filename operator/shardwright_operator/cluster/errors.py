"""What can go wrong with a request, reduced to the cases that are answered differently.

The API server's own message is kept: it is the best explanation that a user can get of a refused write.
"""

from collections.abc import Mapping
from typing import Any

MESSAGE_CHARACTERS = 1024


class ClusterError(Exception):
    """A request failed. ``status`` is the HTTP code, 0 when no answer came."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s

    @property
    def for_people(self) -> str:
        """The failure in a line: a refusal, as for want of rights, is an answer, and no silent cluster."""
        return f"the cluster {'refuses' if self.status else 'does not answer'}: {self.message}"


class NotFoundError(ClusterError):
    """There is no such object, or no such kind."""


class ConflictError(ClusterError):
    """The object is not at the version or UID that was named, or somebody else holds a field."""


class AlreadyExistsError(ConflictError):
    """A create met an object of that name."""


class InvalidError(ClusterError):
    """The server refuses the content: schema, validation, or a webhook's word."""


class ForbiddenError(ClusterError):
    """RBAC, a quota, Pod Security, or a namespace that is going away."""


class UnavailableError(ClusterError):
    """Overload, a fault of the server, a timeout or no connection: the same request may succeed later."""


_BY_STATUS: Mapping[int, type[ClusterError]] = {
    400: InvalidError,
    401: UnavailableError,
    403: ForbiddenError,
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    410: UnavailableError,
    413: InvalidError,
    422: InvalidError,
    429: UnavailableError,
}
"""401 counts as unavailable: a service account's token is rotated, and the next request reads it afresh."""


def error_from_answer(status: int, answer: Mapping[str, Any], retry_after: str | None) -> ClusterError:
    """The typed error of an answer that is no success; ``answer`` is a Status object or whatever came."""
    reason = str(answer.get("reason") or "")
    message = str(answer.get("message") or reason or f"HTTP {status}")[:MESSAGE_CHARACTERS]
    kind = _BY_STATUS.get(status, UnavailableError if status >= 500 else InvalidError)
    if kind is ConflictError and reason == "AlreadyExists":
        kind = AlreadyExistsError
    return kind(message, status=status, reason=reason, retry_after_s=_seconds(retry_after))


def _seconds(header: str | None) -> float | None:
    """``Retry-After`` in seconds; its date form is not used by Kubernetes and is ignored."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
