"""The leases for one site, selector and session. All methods run on the crawl's event loop; discovery is called from the
client's thread, which waits for any number of sites at once."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from twisted.internet.defer import Deferred

from .. import errors
from .._keeper import FAILURES, Held, retryable
from .._want import Want
from ..client import Client
from ..judge import Verdict
from .settings import Settings

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger("proxylease")

AVOID = 60.0  # seconds for which a proxy that was left without a report is not leased again
ANOTHER = 5.0  # seconds that a refused request waits for another proxy
ALMOST = 1.0  # seconds, in which discovery counts waits
RETRY = 1.0  # seconds until a pool asks again after an error
GROWTH_PAUSE = 30.0  # seconds until a pool below its size asks again


class Loop:
    """The event loop of the crawl: asyncio's, or that of a Twisted reactor without asyncio."""

    def __init__(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            self.from_thread: Callable[..., Any] = loop.call_soon_threadsafe
            self.later: Callable[..., Any] = loop.call_later
        except RuntimeError:
            from twisted.internet import reactor

            self.from_thread, self.later = reactor.callFromThread, reactor.callLater  # type: ignore[attr-defined]

    def done(self, future: "Future[Any]", call: Callable[["Future[Any]"], Any]) -> None:
        """Calls call(future) on the crawl's loop when the future is done."""

        def notify(finished: "Future[Any]") -> None:
            try:
                self.from_thread(call, finished)
            except RuntimeError:
                pass  # the crawl's loop has been closed

        future.add_done_callback(notify)


class Slot:
    """A lease of a pool."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.name = held.grant.proxy_name
        self.in_flight = 0
        self.retired = False
        self.doubtful = 0.0  # until when new downloads do not use it: one has failed, and its verdict follows
        self.suspected: Dict[str, Verdict] = {}  # URLs that its proxy was refused for, and that may be at fault themselves
        self.refused: Set[str] = set()  # URLs that it was refused for since the last page, whose doing that was is unknown
        self.replace = False  # it is left when there is another: it was refused for several URLs in a row
        self.connections: Set[Any] = set()  # Twisted's protocols, cut when the lease is lost


class Pool:
    """The leases for one site, selector and session, and the requests that wait for one."""

    def __init__(self, key: Tuple[str, str, str], settings: Settings, client: Client, loop: Loop) -> None:
        self.site, selector, self.session = key
        self.selector: Dict[str, str] = json.loads(selector)
        self._settings, self._client, self._loop = settings, client, loop
        self.slots: List[Slot] = []
        self._avoid: Dict[str, float] = {}  # until when, by proxy
        self._waiting: List[Tuple["Deferred[Optional[BaseException]]", Set[str], float]] = []  # with the end of its patience
        self._acquiring: Optional["Future[Any]"] = None
        self._grow_at = 0.0
        self._closed = False

    def pick(self, refused: Iterable[str], to_start: bool = False) -> Optional[Slot]:
        """The lease for a request that these proxies were refused for; None if it has to wait. to_start is for a download
        that starts now."""
        now = time.monotonic()
        free = [s for s in self.slots if s.name not in refused and not (to_start and now < s.doubtful)]
        if len(self.slots) < self._settings.proxies_per_site and self.slots and now >= self._grow_at:
            self._grow_at = now + GROWTH_PAUSE
            self._acquire()
        if not free:
            return None
        return min(free, key=lambda s: (bool(s.suspected), s.in_flight))

    def wait(self, refused: Set[str], seconds: float) -> "Deferred[Optional[BaseException]]":
        """Fires with None when there is a lease for the request, or with the reason why there is none."""
        d: "Deferred[Optional[BaseException]]" = Deferred()
        limit = min(seconds, ANOTHER) if refused else seconds
        entry = (d, refused, time.monotonic() + limit)
        self._waiting.append(entry)
        timer = self._loop.later(max(0.0, limit), self._give_up, entry, errors.Error(f"no proxy for {self.site} within {limit:.0f} s"))

        def stop(result: Optional[BaseException]) -> Optional[BaseException]:
            if not getattr(timer, "called", False):  # of Twisted, which does not cancel what has been called
                timer.cancel()
            return result

        d.addBoth(stop)
        self._acquire()
        return d

    def retire(self, slot: Slot, avoid: bool = False) -> None:
        """Takes a lease out of use. It is released when the requests under way through it have ended."""
        if slot.retired:
            return
        slot.retired = True
        self.slots.remove(slot)
        if avoid:
            self._avoid[slot.name] = time.monotonic() + AVOID
        if slot.in_flight == 0:
            self.release(slot)

    def release(self, slot: Slot) -> None:
        """Gives a lease back."""
        if slot.held.error is None and not self._closed:
            self._client.submit(self._client.keeper.release(slot.held))

    def clear(self, slot: Slot, url: str) -> None:
        """Ends a suspicion: the URL was refused for its own sake. Leases above the pool's size are released."""
        slot.suspected.pop(url, None)
        good = [s for s in self.slots if not s.suspected]
        for surplus in good[self._settings.proxies_per_site :]:
            self.retire(surplus)

    def worked(self, slot: Slot) -> None:
        """A page came through a lease."""
        slot.refused.clear()
        slot.replace = False

    def refused_for(self, slots: Iterable[Slot], url: str, limit: int) -> None:
        """A URL was refused through several leases. That is its own doing, unless the site has banned them all: after limit
        such URLs in a row a further proxy replaces them, if there is one. None is reported."""
        for slot in slots:
            slot.refused.add(url)
            slot.replace = slot.replace or len(slot.refused) >= limit
        if any(slot.replace for slot in self.slots):
            self._acquire()

    def close(self, error: BaseException) -> None:
        """Fails the requests that wait, and asks for no further leases."""
        self._closed = True
        if self._acquiring is not None:
            self._acquiring.cancel()
        for entry in list(self._waiting):
            self._give_up(entry, error)

    def _give_up(self, entry: Any, error: BaseException) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            entry[0].callback(error)

    def _acquire(self) -> None:
        """Asks for one more lease, unless that is under way."""
        if self._acquiring is not None or self._closed:
            return
        now = time.monotonic()
        self._avoid = {name: until for name, until in self._avoid.items() if until > now}
        exclude = {s.name for s in self.slots} | set(self._avoid)
        for _, refused, _ in self._waiting:
            exclude |= refused
        patience = max(0.0, min((until for _, _, until in self._waiting), default=now) - now)  # 0: to grow
        want = Want(self.selector, self.site, self._settings.ttl, self.session, sorted(exclude)[:64], ("http",))
        self._acquiring = self._client.submit(self._lease(want, patience))
        self._loop.done(self._acquiring, self._acquired)

    async def _lease(self, want: Want, patience: float) -> Slot:
        """Runs on the client's thread."""
        held = await self._client.keeper.acquire(want, patience)
        slot = Slot(held)
        held.on_end = lambda error: self._notify(self._ended, slot, error)
        held.on_unusable = lambda: self._notify(self._unusable, slot)
        return slot

    def _notify(self, call: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.from_thread(call, *args)
        except RuntimeError:
            pass  # the crawl's loop has been closed

    def _acquired(self, future: "Future[Slot]") -> None:
        self._acquiring = None
        if self._closed:
            return  # the client releases it
        try:
            slot = future.result()
        except Exception as error:  # pylint: disable=broad-except  # requests that wait are given up with any
            self._refuse(error)
            return
        if slot.held.error is None:
            for replaced in [s for s in self.slots if s.replace]:
                self.retire(replaced, avoid=True)
            self.slots.append(slot)
        for entry in list(self._waiting):
            if self.pick(entry[1]) is not None:
                self._waiting.remove(entry)
                entry[0].callback(None)
        if self._waiting:
            self._acquire()

    def _refuse(self, error: Exception) -> None:
        """Ends the wait of those whom no lease can be expected for any more: whose patience is over, or all if a retry is in
        vain. Those without a refusal then wait for the proxies that others were refused through."""
        now, again = time.monotonic(), isinstance(error, FAILURES) and retryable(error)
        another = isinstance(error, errors.NoProxy) and any(refused for _, refused, _ in self._waiting)
        for entry in list(self._waiting):
            if entry[2] - now < ALMOST if again else entry[1] or not another:
                self._give_up(entry, error)
        if self._waiting:
            self._loop.later(0.0 if isinstance(error, errors.NoProxy) else RETRY, self._acquire_for_waiting)

    def _acquire_for_waiting(self) -> None:
        if self._waiting:
            self._acquire()

    def _ended(self, slot: Slot, error: BaseException) -> None:
        if not isinstance(error, errors.Lost):
            return
        self.retire(slot)
        for connection in list(slot.connections):
            connection.transport.abortConnection()

    def _unusable(self, slot: Slot) -> None:
        """Moves on: discovery has stopped granting the proxy."""
        self.retire(slot, avoid=True)
