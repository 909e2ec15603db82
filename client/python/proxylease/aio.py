"""The client for asyncio. One task renews all leases of a client."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import ssl
from typing import Any, Awaitable, Callable, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, TypeVar, Union

from . import errors
from ._api import API
from ._attempts import BANS, Attempts
from ._keeper import FAILURES, Held, Keeper
from ._lease import BaseLease, outcome
from ._want import Want
from .judge import Verdict, judge_response

__all__ = ["Client", "Lease"]

log = logging.getLogger("proxylease")
T = TypeVar("T")


class Client:
    """A client of one discovery API, for one event loop."""

    def __init__(self, url: str, token: str = "", timeout: float = 10.0, ssl_context: Optional[ssl.SSLContext] = None) -> None:
        self._keeper = Keeper(API(url, token, timeout, ssl_context))
        self._closed = False

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def lease(
        self,
        selector: Optional[Mapping[str, str]] = None,
        target: str = "",
        ttl: float = 300,
        session: str = "",
        exclude: Iterable[str] = (),
        patience: float = 60.0,
        schemes: Sequence[str] = ("http",),
        wait_for_match: bool = False,
        on_lost: Optional[Callable[["Lease", errors.Error], Any]] = None,
        on_unusable: Optional[Callable[["Lease"], Any]] = None,
    ) -> "_Pending":
        """Leases a proxy as proxylease.Client.lease does: async with client.lease(...) as lease, or await it and close it.
        on_lost(lease, error) and on_unusable(lease) may be coroutine functions."""
        if self._closed:
            raise errors.ClientClosed("the client was closed: make another one")
        want = Want(dict(selector or {}), target, ttl, session, tuple(exclude), tuple(schemes), wait_for_match)
        return _Pending(self._keeper, want, patience, on_lost, on_unusable)

    async def attempts(
        self, fetch: Callable[["Lease"], Awaitable[T]], n: int = 3, judge: Callable[[T], Verdict] = judge_response, **want: Any
    ) -> T:
        """Fetches a page by several attempts, as proxylease.Client.attempts does."""
        attempts: "Attempts[Lease]" = Attempts(n, want)
        async with contextlib.AsyncExitStack() as leases:
            lease: Optional[Lease] = None
            while not attempts.over:
                try:
                    if lease is None:
                        lease = await leases.enter_async_context(self.lease(**attempts.want()))
                except errors.NoProxy:
                    if not attempts.started:
                        raise
                    await _send(attempts.end())
                    break
                verdict = await _attempt(attempts, fetch, judge, lease)
                await _send(attempts.conclude(lease, lease.proxy_name, verdict))
                if verdict.change_proxy:
                    if verdict.report not in BANS:
                        await lease.close()
                    lease = None
        return attempts.outcome()  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Releases all leases. It is idempotent."""
        self._closed = True
        await asyncio.shield(self._keeper.close())


class _Pending:
    """A lease that is awaited or entered."""

    def __init__(self, keeper: Keeper, want: Want, patience: float, on_lost: Any, on_unusable: Any) -> None:
        self._keeper, self._want, self._patience = keeper, want, patience
        self._callbacks = (on_lost, on_unusable)
        self._lease: Optional[Lease] = None

    def __await__(self) -> Any:
        return self._acquire().__await__()

    async def _acquire(self) -> "Lease":
        held = await self._keeper.acquire(self._want, self._patience)
        return Lease(self._keeper, held, *self._callbacks)

    async def __aenter__(self) -> "Lease":
        self._lease = await self._acquire()
        return self._lease

    async def __aexit__(self, *_: Any) -> None:
        if self._lease is not None:
            await self._lease.close()


class Lease(BaseLease):
    """A leased proxy, renewed until it is closed."""

    def __init__(self, keeper: Keeper, held: Held, on_lost: Any, on_unusable: Any) -> None:
        super().__init__(held)
        self._keeper = keeper
        self._on_lost, self._on_unusable = on_lost, on_unusable
        self._things: List[Any] = []
        self._tasks: Set["asyncio.Future[Any]"] = set()
        self._ended = asyncio.Event()
        held.on_end = self._end
        held.on_unusable = self._unusable

    async def __aenter__(self) -> "Lease":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def wait_ended(self) -> None:
        """Waits until the lease was closed or lost."""
        await self._ended.wait()

    def closing(self, thing: T) -> T:
        """Closes thing when the lease ends, by its aclose() or close(), with the connections that it has in use, and
        returns it: an aiohttp.ClientSession or an httpx.AsyncClient."""
        if self.error is not None:
            self._start(_close(thing))
            raise self.error
        self._things.append(thing)
        return thing

    async def report(self, result: Union[str, Verdict, None], target: str = "", retry_after: Optional[int] = None) -> None:
        """Sends a result, or what judge returned, as proxylease.Lease.report does."""
        args = outcome(result, target, retry_after)
        if args is not None:
            await self._keeper.report(self._held, **args)

    async def close(self) -> None:
        """Closes all connections and releases the proxy, also when the calling task is cancelled. It is idempotent."""
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        await self._keeper.release(self._held)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=5)

    def _end(self, error: errors.Error) -> None:
        self._ended.set()
        things, self._things = self._things, []
        for thing in things:
            self._start(_close(thing))
        if isinstance(error, errors.Lost) and self._on_lost is not None:
            self._start(_run(self._on_lost, self, error))

    def _unusable(self) -> None:
        if self._on_unusable is not None:
            self._start(_run(self._on_unusable, self))

    def _start(self, call: Any) -> None:
        task = asyncio.ensure_future(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _attempt(attempts: "Attempts[Lease]", fetch: Callable[[Lease], Awaitable[T]], judge: Callable[[T], Verdict], lease: Lease) -> Verdict:
    attempts.result = attempts.error = None
    try:
        attempts.result = await fetch(lease)
        return judge(attempts.result)
    except Exception as error:  # pylint: disable=broad-except  # outcome raises it
        attempts.error = error
        return attempts.judge_error(error)


async def _send(reports: List[Tuple[Lease, Verdict]]) -> None:
    for lease, verdict in reports:
        try:
            await lease.report(verdict)
        except FAILURES as error:
            log.warning("a report of %s was not delivered: %s", lease.proxy_name, error)


async def _run(callback: Any, *args: Any) -> None:
    result = callback(*args)
    if inspect.isawaitable(result):
        await result


async def _close(thing: Any) -> None:
    try:
        await _run(getattr(thing, "aclose", None) or thing.close)
    except Exception as error:  # pylint: disable=broad-except  # the others are closed nevertheless
        log.warning("%s raised at its close: %r", type(thing).__name__, error)
