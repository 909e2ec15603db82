"""The download handler, which chooses the proxy at the last moment."""

from __future__ import annotations

import base64
import inspect
import time
from typing import Any, Dict, List, Optional

from scrapy import signals
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred, DeferredList

from .._exceptions import PROXY, RESPONSE, TUNNEL
from .leases import MARK, Flight, Leases
from .pool import Slot


VERDICT_TIME = 1.0  # seconds within which the middleware gets the result of a download
DOUBTFUL = (0, 403, 407, 429, 451)  # statuses that may cost the lease; 0 stands for an exception


class NoLease(IgnoreRequest):  # type: ignore[misc]
    """The site's lease ended while the request waited in its downloader slot. The middleware schedules it again."""


class LeaseHandler:
    """Downloads through the lease of the site by one of Scrapy's handlers. It is an old-style handler, with Deferreds, if
    that one is."""

    lazy = False

    def __init__(self, crawler: Any, inner: Dict[str, Any], leases: Leases) -> None:
        self._crawler, self._inner, self._leases = crawler, inner, leases  # inner by scheme, which may share one
        self._current: Optional[Any] = None  # the request whose connection is asked for next
        self._watched: List[Any] = []
        for handler in self._handlers():
            self._watch(handler)
        crawler.signals.connect(self._headers_received, signal=signals.headers_received)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        leases = Leases.of(crawler)
        paths = {scheme: leases.settings.handlers[scheme] for scheme in ("http", "https")}
        made = {path: _make(load_object(path), crawler) for path in set(paths.values())}
        kinds = {inspect.iscoroutinefunction(handler.download_request) for handler in made.values()}
        if len(kinds) > 1:
            raise ValueError("PROXYLEASE_DOWNLOAD_HANDLERS: download_request must be a coroutine function of both handlers, or of neither")
        kind = _Coroutine if kinds.pop() else _Deferring
        return kind(crawler, {scheme: made[path] for scheme, path in paths.items()}, leases)

    def _handlers(self) -> List[Any]:
        """The handlers that download, each once."""
        return list({id(handler): handler for handler in self._inner.values()}.values())

    def _inner_of(self, request: Any) -> Any:
        return self._inner[request.url.partition(":")[0].lower()]

    def close(self) -> Any:
        """Closes the connections."""
        closed = [handler.close() for handler in self._handlers() if hasattr(handler, "close")]
        return DeferredList([d for d in closed if isinstance(d, Deferred)])

    def _before(self, request: Any) -> Optional[Slot]:
        """Sets the proxy of a request; None if it has none of ours."""
        self._current = None
        if MARK not in request.meta:
            return None
        pool, slot = self._leases.pick(request, to_start=True)
        if slot is None:
            raise NoLease(f"no lease for {pool.site}")
        grant = slot.held.grant
        request.meta["proxy"] = grant.server
        request.meta["proxylease_proxy"] = slot.name
        if grant.username is not None:
            login = f"{grant.username}:{grant.password}".encode()
            request.headers[b"Proxy-Authorization"] = b"Basic " + base64.b64encode(login)
        watched = self._inner_of(request) in self._watched
        if not watched:
            request.headers[b"Connection"] = b"close"  # see _watch
        self._leases.flights[request] = Flight(slot, PROXY if watched else None)
        slot.in_flight += 1
        self._current = request
        return slot

    def _after(self, request: Any, slot: Optional[Slot], result: Any) -> None:
        if slot is None:
            return
        if getattr(result, "status", 0) in DOUBTFUL:  # its downloader slot starts the next before the middleware has it
            slot.doubtful = time.monotonic() + VERDICT_TIME
        request.meta["proxy"] = None  # neither the environment's proxies nor this one for a copy of the request
        request.headers.pop(b"Proxy-Authorization", None)
        slot.in_flight -= 1
        if slot.retired and slot.in_flight == 0:
            self._leases.pool(request).release(slot)

    def _watch(self, handler: Any) -> None:
        """Has Twisted's connection pool report how far a request came, which its exceptions do not show."""
        pool: Any = getattr(handler, "_pool", None)
        get: Any = getattr(pool, "getConnection", None)
        if get is None:
            return
        self._watched.append(handler)
        # A tunnel in the pool would outlive the lease, and the pool cannot close those of one proxy.
        pool.persistent = False

        def get_connection(key: Any, endpoint: Any) -> Any:
            request, self._current = self._current, None
            d = get(key, endpoint)
            if request is not None:
                d.addCallback(_connected, self._leases.flights[request])
            return d

        pool.getConnection = get_connection

    def _headers_received(self, request: Any) -> None:
        flight = self._leases.flights.get(request)
        if flight is not None:
            flight.stage = RESPONSE


def _make(inner_class: Any, crawler: Any) -> Any:
    make = getattr(inner_class, "from_crawler", None)
    return make(crawler) if make else inner_class(crawler.settings)


def _connected(protocol: Any, flight: Flight) -> Any:
    """The tunnel, or the connection to the proxy of a plain request, is there."""
    flight.stage = TUNNEL
    connections = flight.slot.connections
    connections -= {c for c in connections if getattr(c, "state", "") == "CONNECTION_LOST"}
    connections.add(protocol)
    return protocol


class _Coroutine(LeaseHandler):
    async def download_request(self, request: Any) -> Any:
        slot = self._before(request)
        result = None
        try:
            result = await self._inner_of(request).download_request(request)
            return result
        finally:
            self._after(request, slot, result)

    async def close(self) -> None:
        for handler in self._handlers():
            await handler.close()


class _Deferring(LeaseHandler):
    def download_request(self, request: Any, spider: Any) -> Any:
        slot = self._before(request)
        try:
            d = self._inner_of(request).download_request(request, spider)
        except BaseException:
            self._after(request, slot, None)
            raise

        def after(result: Any) -> Any:
            self._after(request, slot, result)
            return result

        return d.addBoth(after)


