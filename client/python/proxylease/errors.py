"""The errors of this package. All of them are an Error."""

from __future__ import annotations

from typing import Any, Mapping

from ._headers import header, parse_retry_after

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
        self.retry_after = parse_retry_after(header(headers, "Retry-After")) or 0  # 0: a retry fails unless something changes
        super().__init__(f"discovery answered {status} {self.code}: {self.message}")


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
