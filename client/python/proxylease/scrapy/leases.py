"""All leases of one crawl, which the handler and the middleware share."""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Optional, Set, Tuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from ..client import Client
from ..judge import Verdict
from .._keeper import FAILURES
from .pool import Loop, Pool, Slot
from .settings import Settings

log = logging.getLogger("proxylease")

MARK = "_proxylease"  # the meta key of requests that get a leased proxy: what is known about them, for any queue


class Flight:
    """A download under way or just ended."""

    def __init__(self, slot: Slot, stage: Optional[str]) -> None:
        self.slot, self.stage = slot, stage


def site_of(url: str) -> str:
    """The site of a URL, as targets name it."""
    return (urlsplit(url).hostname or "").rstrip(".")


class Leases:
    """The pools of a crawl, by site, selector and session."""

    _of: "WeakKeyDictionary[Any, Leases]" = WeakKeyDictionary()  # by crawler

    def __init__(self, crawler: Any) -> None:
        self.settings = Settings(crawler.settings)
        self.stats = crawler.stats
        self._client = Client(self.settings.url, self.settings.token)
        self._pools: Dict[Tuple[str, str, str], Pool] = {}
        self._loop: Optional[Loop] = None
        self.flights: "WeakKeyDictionary[Any, Flight]" = WeakKeyDictionary()  # by request
        self._blamed: Set[str] = set()  # URLs for which a ban was reported

    @classmethod
    def of(cls, crawler: Any) -> "Leases":
        """Those of a crawler."""
        if crawler not in cls._of:
            cls._of[crawler] = cls(crawler)
        return cls._of[crawler]

    @property
    def loop(self) -> Loop:
        """The crawl's event loop, which runs by the first request."""
        self._loop = self._loop or Loop()
        return self._loop

    def pool(self, request: Any) -> Pool:
        """The pool for a request."""
        key = self.settings.key(request, site_of(request.url))
        if key not in self._pools:
            self._pools[key] = Pool(key, self.settings, self._client, self.loop)
        return self._pools[key]

    def pick(self, request: Any, to_start: bool = False) -> Tuple[Pool, Optional[Slot]]:
        """The pool for a request, and the lease if there is one."""
        pool = self.pool(request)
        return pool, pool.pick(request.meta[MARK]["refused"], to_start)

    def report(self, slot: Slot, verdict: Verdict, site: str) -> None:
        """Reports a result in the background."""
        assert verdict.report is not None
        self.stats.inc_value("proxylease/reports/" + verdict.report)
        target = site if verdict.about_target else ""
        future = self._client.submit(self._client.keeper.report(slot.held, verdict.report, target, verdict.retry_after))
        future.add_done_callback(_log_failure)

    def suspects(self, request: Any) -> List[Slot]:
        """The leases, of those still held, whose proxies were refused for a request."""
        ids = request.meta[MARK]["refused"].values()
        return [slot for slot in self.pool(request).slots if slot.held.grant.id in ids]

    def ban(self, pool: Pool, slot: Slot, verdict: Verdict, url: str) -> None:
        """Reports a ban and leaves the proxy. At most one ban is reported for one URL."""
        if slot.retired or url in self._blamed:
            pool.clear(slot, url)
            return
        self._blamed.add(url)
        self.report(slot, verdict, pool.site)
        pool.retire(slot)

    def stop_waiting(self, error: BaseException) -> None:
        """Ends all waits, for the end of the crawl."""
        for pool in self._pools.values():
            pool.close(error)

    def close(self, closed: Any) -> None:
        """Releases all leases, and calls closed() on the crawl's loop."""
        self.stop_waiting(RuntimeError("the crawl ends"))

        def finish(_: Any) -> None:
            self._client.close()
            closed()

        self.loop.done(self._client.submit(self._client.keeper.close()), finish)


def _log_failure(future: Any) -> None:
    error = None if future.cancelled() else future.exception()
    if isinstance(error, FAILURES):
        log.warning("a report was not delivered: %s", error)
