"""The errors of this package. All of them are an Error."""

from __future__ import annotations

from typing import Any, Mapping, Optional

__all__ = ["Error", "APIError", "BadAnswer", "NoProxy", "Unreachable", "UnsupportedProxy", "Lost", "Released", "ClientClosed"]


class Error(Exception):
    """The base class of all errors of this package."""


class APIError(Error):
    """A response of discovery with a status of 400 or above."""

    def __init__(self, status: int, headers: Mapping[str, str], problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("error", ""))
        self.message = str(problem.get("message", ""))
        self.reason = str(problem.get("reason", ""))  # of a lease that is gone
        self.counts = {k: v for k, v in problem.items() if isinstance(v, int) and k not in ("status", "retryAfterSeconds")}
        self.retry_after = max(0, _integer(headers.get("Retry-After")))  # 0: a retry fails unless something changes
        super().__init__(f"discovery answered {status} {self.code}: {self.message}")


def _integer(text: Optional[str]) -> int:
    try:
        return int(text or "0")
    except ValueError:
        return 0


class NoProxy(APIError):
    """No proxy was free within the patience, or none matches."""


class BadAnswer(Error):
    """A response that is not from discovery, such as from an intermediary."""


class Unreachable(Error, ConnectionError):
    """Discovery did not respond."""


class UnsupportedProxy(Error):
    """A lease was granted on a proxy with a scheme that was not asked for."""


class Lost(Error):
    """The lease ended before it was closed."""


class Released(Error):
    """The lease was closed, with its connections."""


class ClientClosed(Error):
    """The client was closed, with all its leases."""
