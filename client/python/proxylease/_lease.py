"""What the leases of the sync and of the asyncio client have in common."""

from __future__ import annotations

import urllib.parse
from typing import Any, Dict, Mapping, Optional, Union

from .errors import Error
from ._keeper import Held
from .judge import Verdict


class BaseLease:
    """A proxy that is yours until the lease is closed. repr() has no password."""

    def __init__(self, held: Held) -> None:
        grant = held.grant
        self._held = held
        self.id = grant.id
        self.proxy: Dict[str, Any] = grant.proxy  # name, namespace, host, port, attributes
        self.proxy_name = grant.proxy_name  # "namespace/name", as exclude= takes it
        self.proxy_url = grant.proxy_url  # may contain a password
        self.server = grant.server  # the same without username and password
        self.scheme, self.host, self.port = grant.scheme, grant.host, grant.port
        self.username, self.password = grant.username, grant.password  # not encoded; None without
        self.target = grant.target
        self.fencing_token = grant.fencing_token

    def __repr__(self) -> str:
        return f"<Lease {self.id} on {self.proxy_name}>"

    @property
    def proxies(self) -> Dict[str, str]:
        """The proxies argument of requests."""
        return {"http": self.proxy_url, "https": self.proxy_url}

    @property
    def error(self) -> Optional[Error]:
        """None while the lease is active, then Lost or Released."""
        return self._held.error

    @property
    def usable(self) -> bool:
        """Whether the lease is active and its proxy works, as far as discovery knew at the last renewal. Change to another
        lease when it is False."""
        return self._held.usable

    @property
    def proxy_status(self) -> Mapping[str, Any]:
        """What the last renewal returned about the proxy: verdict, reason, usable and message; empty before."""
        return self._held.status


def outcome(result: Union[str, Verdict, None], target: str, retry_after: Optional[int]) -> Optional[Dict[str, Any]]:
    """The arguments of a report; None if there is nothing to report. target may be a URL."""
    if isinstance(result, Verdict):
        retry_after = result.retry_after if retry_after is None else retry_after
        target = target or result.target if result.about_target else ""
        result = result.report
    if result is None:
        return None
    if "://" in target:
        target = urllib.parse.urlsplit(target).hostname or ""
    return {"result": result, "target": target, "retry_after": retry_after}
