"""The downloader middleware: requests wait for a lease, and are repeated through another proxy when one fails."""

from __future__ import annotations

import logging
import time
from typing import Any, Dict

from scrapy import signals
from scrapy.exceptions import DontCloseSpider, IgnoreRequest
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred

from .._headers import parse_retry_after
from ..errors import Error
from ..judge import Verdict, judge
from .handler import LeaseHandler, NoLease
from .leases import MARK, Leases, site_of
from .pool import Slot

log = logging.getLogger("proxylease")

BANS = ("banned", "captcha")
REFUSALS_IN_A_ROW = 3  # URLs that a proxy is refused for, without a page in between, until another proxy is tried
IDEMPOTENT = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE")
CLOSING_POLL = 0.2  # seconds


class GaveUp(IgnoreRequest):  # type: ignore[misc]
    """A request was given up. It reaches the request's errback, is logged, and is counted as proxylease/gave_up."""


class LeaseMiddleware:
    """Has requests wait for the lease of their site and judges what became of them. Override judge or judge_exception for
    what is special about your sites."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler
        self.leases = Leases.of(crawler)
        self.settings = self.leases.settings
        self._aside = 0  # requests that wait without taking part in CONCURRENT_REQUESTS
        self._waits = 0
        self._polling = False
        for scheme in ("http", "https"):
            path = crawler.settings.getdict("DOWNLOAD_HANDLERS").get(scheme)
            if path is None or not issubclass(load_object(path), LeaseHandler):
                raise ValueError(f'DOWNLOAD_HANDLERS: "{scheme}" must be "proxylease.scrapy.LeaseHandler", or requests would go out without a proxy')
        crawler.signals.connect(self.spider_idle, signal=signals.spider_idle)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Any) -> "LeaseMiddleware":
        return cls(crawler)

    def judge(self, request: Any, response: Any) -> Verdict:
        """What follows from a response."""
        site = site_of(response.url)
        after = (response.headers.get("Retry-After") or b"").decode("latin-1")
        verdict = judge(response.status, {"Retry-After": after}, url=response.url)
        texts = self.settings.texts(site)
        banned = response.status in self.settings.statuses(site) or bool(texts) and any(t in getattr(response, "text", "") for t in texts)
        if banned and verdict.report not in ("connect_error", "rate_limited"):
            return Verdict("banned", about_target=True, change_proxy=True, retry=True, retry_after=parse_retry_after(after))
        return Verdict() if verdict.report == "banned" else verdict  # not at this site

    def judge_exception(self, request: Any, exception: BaseException) -> Verdict:
        """What follows from an exception of the download."""
        flight = self.leases.flights[request]
        if flight.slot.held.error is not None:
            return judge(error=flight.slot.held.error)
        return judge(error=exception, stage=flight.stage)

    async def process_request(self, request: Any, spider: Any = None) -> Any:
        if not request.url.startswith(("http:", "https:")):
            return None
        if request.meta.get("proxy") or request.meta.get("proxylease") is False:
            request.meta.pop(MARK, None)  # of the request whose meta this one copied
            return None
        state = self._state(request)
        request.meta["proxy"] = None  # keeps the environment's proxies away; the handler sets it
        pool, slot = self.leases.pick(request)
        if slot is not None:
            return None
        error, aside = await self._wait(request, pool)
        if error is None:
            # Many requests may have waited: the scheduler has them take turns with those of other sites.
            return self._again(request) if aside and self.crawler.engine.downloader.needs_backout() else None
        if self._closing() and self.crawler.settings.get("JOBDIR"):
            return self._again(request)  # the scheduler keeps it for the next run
        if state["refused"] and not self._closing():
            return self._no_other_proxy(request, state)
        raise self._gave_up(request, "no_proxy", error)

    def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        if request not in self.leases.flights:
            return response
        return self._act(request, self.judge(request, response), f"status {response.status}") or response

    def process_exception(self, request: Any, exception: BaseException, spider: Any = None) -> Any:
        if isinstance(exception, NoLease):
            return self._again(request)
        if request not in self.leases.flights or isinstance(exception, GaveUp):
            return None
        return self._act(request, self.judge_exception(request, exception), repr(exception))

    def spider_idle(self) -> None:
        """Keeps the spider open for the requests that wait."""
        if self._waits:
            raise DontCloseSpider

    def spider_closed(self) -> "Deferred[None]":
        done: "Deferred[None]" = Deferred()
        self.leases.close(lambda: done.callback(None))
        return done

    def _state(self, request: Any) -> Dict[str, Any]:
        """What is known about a request. A redirect begins anew."""
        state: Dict[str, Any] = request.meta.get(MARK) or {}
        if state.get("url") != request.url:
            state = {"url": request.url, "refused": {}, "changes": 0, "waited": 0.0}
        request.meta[MARK] = state
        return state

    async def _wait(self, request: Any, pool: Any) -> Any:
        """Waits for a lease, so that requests for other sites go on. Returns an error, and whether it did not take part in
        CONCURRENT_REQUESTS."""
        state, start = request.meta[MARK], time.monotonic()
        active = self.crawler.engine.downloader.active
        aside = self._aside < self.settings.max_waiting and request in active
        if aside:
            self._aside += 1
            active.discard(request)
            self._schedule_others()
        self._waits += 1
        self._poll_closing()
        try:
            error = await maybe_deferred_to_future(pool.wait(set(state["refused"]), self.settings.patience - state["waited"]))
        finally:
            self._waits -= 1
            if aside:
                self._aside -= 1
                active.add(request)
            state["waited"] += time.monotonic() - start
        return error, aside

    def _engine_slot(self) -> Any:
        engine = self.crawler.engine
        return getattr(engine, "_slot", None) or getattr(engine, "slot", None)

    def _closing(self) -> bool:
        slot = self._engine_slot()
        return slot is None or bool(getattr(slot, "closing", None))

    def _schedule_others(self) -> None:
        """Has the engine go on with other requests now, and not at its next heartbeat."""
        nextcall = getattr(self._engine_slot(), "nextcall", None)
        if nextcall is not None:
            nextcall.schedule()

    def _poll_closing(self) -> None:
        """Ends the waits when the spider closes: it waits for all requests, and no signal announces it."""
        if self._polling:
            return
        self._polling = True

        def poll() -> None:
            self._polling = False
            if self._closing():
                self.leases.stop_waiting(Error("the spider closes"))
            elif self._waits:
                self._poll_closing()

        self.leases.loop.later(CLOSING_POLL, poll)

    def _again(self, request: Any) -> Any:
        return request.replace(dont_filter=True)

    def _act(self, request: Any, verdict: Verdict, cause: str) -> Any:
        """Reports a result, leaves the proxy if need be, and returns the request when it is to be repeated."""
        slot = self.leases.flights.pop(request).slot
        slot.doubtful = 0.0
        pool = self.leases.pool(request)
        if verdict.report in BANS:
            return self._refused(request, pool, slot, verdict, cause)
        if verdict.report == "ok":
            pool.worked(slot)
            self._convict(request, pool)
            request.meta[MARK].update(changes=0, waited=0.0)  # a request with a copy of this meta begins anew
            return None
        self._clear(request, pool)
        if not slot.retired and verdict.change_proxy:
            if verdict.report is not None:
                self.leases.report(slot, verdict, pool.site)
            pool.retire(slot, avoid=verdict.report in (None, "target_timeout"))
        if not verdict.change_proxy or not verdict.retry or not _repeatable(request, verdict):
            return None
        return self._change(request, cause)

    def _change(self, request: Any, cause: str) -> Any:
        state = request.meta[MARK]
        if state["changes"] >= self.settings.max_changes:
            self._gave_up(request, "max_changes", cause)
            return None  # the spider gets the response, retries or the errback the exception
        state["changes"] += 1
        self.leases.stats.inc_value("proxylease/changes")
        log.debug("%s is repeated through another proxy: %s", request, cause)
        return self._again(request)

    def _refused(self, request: Any, pool: Any, slot: Slot, verdict: Verdict, cause: str) -> Any:
        """Finds out whether the site refuses the proxy or the URL: by another proxy, or, for requests that may not be
        repeated, since it refuses the proxy for one URL after the other."""
        state, url = request.meta[MARK], request.url
        if not _repeatable(request, verdict):
            slot.refused.add(url)
            if len(slot.refused) >= REFUSALS_IN_A_ROW:
                self.leases.ban(pool, slot, verdict, url)
            return None
        state["refused"][slot.name] = slot.held.grant.id
        if not slot.retired:
            slot.suspected[url] = verdict
        if len(state["refused"]) >= self.settings.max_refusals:
            pool.refused_for(self.leases.suspects(request), url, REFUSALS_IN_A_ROW)
            self._clear(request, pool)
            self._gave_up(request, "refused", f"{cause} through {len(state['refused'])} proxies")
            return None
        if state["changes"] >= self.settings.max_changes and len(state["refused"]) == 1:
            self._convict(request, pool)  # no other proxy is to be tried
        return self._change(request, cause)

    def _no_other_proxy(self, request: Any, state: Dict[str, Any]) -> Any:
        """No further proxy can be tried for a URL that was refused."""
        pool = self.leases.pool(request)
        if len(state["refused"]) > 1:
            self._clear(request, pool)
            raise self._gave_up(request, "refused", f"{len(state['refused'])} proxies were refused, and there is no other")
        self._convict(request, pool)
        return self._again(request)

    def _convict(self, request: Any, pool: Any) -> None:
        """The URL has a page for others: the site has banned the proxy that was refused."""
        for slot in self.leases.suspects(request):
            self.leases.ban(pool, slot, slot.suspected.get(request.url) or Verdict("banned", about_target=True), request.url)
        request.meta[MARK]["refused"].clear()

    def _clear(self, request: Any, pool: Any) -> None:
        for slot in self.leases.suspects(request):
            pool.clear(slot, request.url)

    def _gave_up(self, request: Any, reason: str, cause: Any) -> GaveUp:
        stats = self.leases.stats
        stats.inc_value("proxylease/gave_up")
        stats.inc_value("proxylease/gave_up/" + reason)
        log.warning("%s is given up: %s", request, cause)
        return GaveUp(f"given up: {cause}")


def _repeatable(request: Any, verdict: Verdict) -> bool:
    """Whether a request may be sent again: it is idempotent, or nothing of it reached the target."""
    return request.method in IDEMPOTENT or verdict.report in ("connect_error", "proxy_timeout", "target_unreachable", "rate_limited")


__all__ = ["GaveUp", "LeaseMiddleware"]
