"""What a lease request asks for, and what its grant contains."""

from __future__ import annotations

import datetime
import email.utils
import math
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Mapping, Optional, Sequence

from ._headers import header
from .errors import BadAnswer


@dataclass(frozen=True)
class Want:
    """A request for a lease."""

    selector: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    ttl: float = 300
    session: str = ""
    exclude: Iterable[str] = ()
    schemes: Sequence[str] = ("http",)
    wait_for_match: bool = False

    def body(self) -> Dict[str, Any]:
        """The body of the request, without its wait."""
        out: Dict[str, Any] = {"ttlSeconds": max(1, math.ceil(self.ttl))}
        optional = (
            ("selector", dict(self.selector)), ("target", self.target), ("session", self.session), ("exclude", list(self.exclude)),
            ("schemes", list(self.schemes)), ("waitForMatch", self.wait_for_match),
        )
        out.update((name, value) for name, value in optional if value)
        return out


class Grant:
    """The proxy of a lease, and how to reach it. repr() has no password."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        try:
            self.id = str(answer["leaseID"])
            self.proxy = dict(answer["proxy"])
            self.proxy_name = "{namespace}/{name}".format(**self.proxy)
            self.proxy_url = str(answer["proxyURL"])
            self.target = str(answer["target"])
            self.fencing_token = int(answer["fencingToken"])
            self.ttl = int(answer["ttlSeconds"])
            parts = urllib.parse.urlsplit(self.proxy_url)
            self.scheme, self.host, self.port = parts.scheme, parts.hostname or "", parts.port or 0
        except KeyError as error:
            raise BadAnswer(f"the grant has no {error.args[0]}") from None
        except (TypeError, ValueError, OverflowError):
            raise BadAnswer("the grant has a field of the wrong type") from None
        self.username = _unquote(parts.username) if parts.username is not None else None
        self.password = _unquote(parts.password or "") if parts.username is not None else None

    @property
    def server(self) -> str:
        """The proxy's URL without username and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Grant {self.id} on {self.proxy_name}>"


def _unquote(text: str) -> str:
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:  # its replacement characters would be another login
        raise BadAnswer("the grant's username or password is not UTF-8: change the proxy's credentials") from None


def deadline(answer: Mapping[str, Any], headers: Mapping[str, str], sent: float) -> float:
    """The earliest time, by the client's monotonic clock, at which the lease expires. The API's clock may differ:
    expiresAt counts from the answer's Date, which is rounded down to seconds."""
    for name, kind in (("leaseID", str), ("expiresAt", str), ("ttlSeconds", int)):
        if not isinstance(answer.get(name), kind):
            raise BadAnswer("the answer has no " + name)
    try:
        date: Optional[datetime.datetime] = email.utils.parsedate_to_datetime(header(headers, "Date") or "")
        expires = datetime.datetime.fromisoformat(answer["expiresAt"].replace("Z", "+00:00"))
        return time.monotonic() + (expires - date).total_seconds() - 1  # type: ignore[operator]
    except (TypeError, ValueError, OverflowError):
        return sent + float(min(answer["ttlSeconds"], 1 << 31))
