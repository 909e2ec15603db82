"""The client for code without asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import threading
import urllib.request
import weakref
from concurrent.futures import Future, TimeoutError as FutureTimeout
from typing import Any, Callable, Coroutine, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from . import _urllib, errors
from ._api import API
from ._attempts import BANS, Attempts
from ._cut import Connections, close_all
from ._keeper import FAILURES, Held, Keeper
from ._lease import BaseLease, outcome
from ._want import Want
from .judge import Verdict, judge_response

__all__ = ["Client", "Lease"]

T = TypeVar("T")
log = logging.getLogger("proxylease")
ABANDON_TIMEOUT = 5.0  # seconds for which an interrupted request for a lease gives back what it got


class Client:
    """A client of one discovery API. It is thread-safe. One thread renews all its leases; it ends with the client."""

    def __init__(self, url: str, token: str = "", timeout: float = 10.0, ssl_context: Optional[ssl.SSLContext] = None) -> None:
        self._api = API(url, token, timeout, ssl_context)
        self._lock = threading.RLock()
        self._engine: Optional[_Engine] = None
        self._closed = False

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

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
        on_lost: Optional[Callable[["Lease", errors.Error], None]] = None,
        on_unusable: Optional[Callable[["Lease"], None]] = None,
    ) -> "Lease":
        """Leases a proxy and returns a Lease, to be used in a with statement or closed. It waits up to patience seconds for
        a free proxy, and raises NoProxy when there is none by then. A selector that matches nothing fails at once, unless
        wait_for_match is set. schemes are those of proxies that you can speak to: http, https, socks5.

        on_lost(lease, error) and on_unusable(lease), for a proxy that has become unhealthy or is about to go, are called
        from a thread of their own."""
        want = Want(dict(selector or {}), target, ttl, session, tuple(exclude), tuple(schemes), wait_for_match)
        lease: List[Lease] = []
        tasks: List["asyncio.Task[None]"] = []

        async def acquire() -> None:
            tasks.append(asyncio.current_task())  # type: ignore[arg-type]
            held = await self.keeper.acquire(want, patience)
            lease.append(Lease(self, held, on_lost, on_unusable))

        async def abandon() -> None:
            await asyncio.wait(tasks)
            if lease:
                await self.keeper.release(lease[0]._held)  # pylint: disable=protected-access

        try:
            self._call(acquire())
            return lease[0]
        except errors.Error:
            raise
        except BaseException:  # such as KeyboardInterrupt, also right after the grant
            if tasks:
                with contextlib.suppress(errors.Error, TimeoutError, FutureTimeout):
                    self.submit(abandon()).result(ABANDON_TIMEOUT)
            raise
        finally:
            tasks.clear()  # an exception of theirs would keep this frame, and the client, alive

    def attempts(
        self, fetch: Callable[["Lease"], T], n: int = 3, judge: Callable[[T], Verdict] = judge_response, **want: Any
    ) -> T:
        """Has fetch(lease) fetch a page, up to n times, each time through another proxy when the verdict demands it, and returns
        its last result, or raises its last exception. want is as for lease; pass target. fetch returns a response whose body
        it has read, of an idempotent request, and judge makes a verdict from it. Reports are sent.

        A refused proxy stays leased until it is known whose doing the refusal was: it is reported as banned when another
        proxy gets the page, or when there is no other. Several refused proxies are the URL's doing: nothing is reported."""
        attempts: "Attempts[Lease]" = Attempts(n, want)
        with contextlib.ExitStack() as leases:
            lease: Optional[Lease] = None
            while not attempts.over:
                try:
                    if lease is None:
                        lease = leases.enter_context(self.lease(**attempts.want()))
                except errors.NoProxy:
                    if not attempts.started:
                        raise
                    _send(attempts.end())
                    break
                verdict = _attempt(attempts, fetch, judge, lease)
                _send(attempts.conclude(lease, lease.proxy_name, verdict))
                if verdict.change_proxy:
                    if verdict.report not in BANS:
                        lease.close()
                    lease = None
        return attempts.outcome()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Releases all leases and ends the thread. It is idempotent."""
        with self._lock:
            self._closed, engine = True, self._engine
        if engine is not None:
            engine.close()

    def submit(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine on the client's thread. For code with an event loop of its own, which must not block."""
        with self._lock:  # close must not stop the loop meanwhile
            try:
                loop = self._running().loop
            except errors.ClientClosed:
                call.close()
                raise
            return asyncio.run_coroutine_threadsafe(call, loop)

    @property
    def keeper(self) -> Keeper:
        """What holds the leases, for coroutines that submit runs."""
        return self._running().keeper

    def _running(self) -> "_Engine":
        with self._lock:
            if self._closed:
                raise errors.ClientClosed("the client was closed: make another one")
            if self._engine is None or self._engine.pid != os.getpid():  # a fork has no threads of its parent
                self._engine = _Engine(self._api)
                weakref.finalize(self, self._engine.stop)
            return self._engine

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        future = self.submit(call)
        try:
            return future.result()
        except BaseException:  # such as KeyboardInterrupt
            future.cancel()
            raise


class _Engine:
    """The thread of a client, with its event loop."""

    def __init__(self, api: API) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.keeper = Keeper(api)
        self.thread = threading.Thread(target=self._run, name="proxylease", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()  # the renewals release the leases that are left
                self.loop.run_until_complete(asyncio.wait({task}))
            self.loop.close()

    def close(self) -> None:
        if self.pid == os.getpid() and not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(self.keeper.close(), self.loop).result()
            self.stop()
            if self.thread is not threading.current_thread():
                self.thread.join()

    def stop(self) -> None:
        if self.pid == os.getpid() and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)


class Lease(BaseLease):
    """A leased proxy. It is renewed in the background until it is closed, and is thread-safe."""

    def __init__(
        self,
        client: Client,
        held: Held,
        on_lost: Optional[Callable[["Lease", errors.Error], None]],
        on_unusable: Optional[Callable[["Lease"], None]],
    ) -> None:
        super().__init__(held)
        self._client = client
        self._connections = Connections()
        self._on_lost, self._on_unusable = on_lost, on_unusable
        self._ended = threading.Event()
        held.on_end = self._end
        held.on_unusable = self._unusable

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def ended(self) -> threading.Event:
        """It is set when the lease was closed or lost."""
        return self._ended

    def closing(self, thing: T) -> T:
        """Calls thing.close() when the lease ends, and returns thing, such as a session. Of a requests.Session, a urllib3
        manager or an httpx.Client the connections in use are cut, too."""
        return self._connections.add(thing)  # type: ignore[no-any-return]

    def open(
        self, url: Union[str, urllib.request.Request], data: Optional[bytes] = None, timeout: float = 30, context: Optional[ssl.SSLContext] = None
    ) -> Any:
        """Opens a URL, or a urllib.request.Request, through the proxy as urllib.request.urlopen does."""
        if self.scheme != "http":
            raise errors.UnsupportedProxy(f"urllib cannot speak {self.scheme} with a proxy: lease with schemes=('http',), or use another library")
        if self.error is not None:
            raise self.error
        return _urllib.opener(self, self._connections, context).open(url, data, timeout)

    def report(self, result: Union[str, Verdict, None], target: str = "", retry_after: Optional[int] = None) -> None:
        """Sends a result, or what judge returned: ok, rate_limited, banned, captcha, target_unreachable, target_timeout,
        proxy_timeout or connect_error. target is the site, or the URL, of the request whose result it is; the default is
        the lease's target. While discovery is down, such as in a rollout, it retries for 20 seconds. An APIError with the code
        too_many_cooldowns means that the report was dropped; retry after its retry_after."""
        args = outcome(result, target, retry_after)
        if args is not None:
            self._client._call(self._client.keeper.report(self._held, **args))  # pylint: disable=protected-access

    def close(self) -> None:
        """Cuts all connections and releases the proxy. It is idempotent. When discovery stays unreachable the lease
        expires by itself."""
        try:
            self._client._call(self._client.keeper.release(self._held))  # pylint: disable=protected-access
        except errors.ClientClosed:
            pass  # which has released it

    def _end(self, error: errors.Error) -> None:
        """Runs on the client's thread, and so leaves calls of other code to a thread of their own."""
        things = self._connections.end(error)
        self._ended.set()
        lost = self._on_lost if isinstance(error, errors.Lost) else None
        if things or lost is not None:
            threading.Thread(target=self._after_end, args=(things, lost, error), name="proxylease-end", daemon=True).start()

    def _after_end(self, things: List[Any], lost: Any, error: errors.Error) -> None:
        close_all(things)
        if lost is not None:
            lost(self, error)

    def _unusable(self) -> None:
        if self._on_unusable is not None:
            threading.Thread(target=self._on_unusable, args=(self,), name="proxylease-unusable", daemon=True).start()


def _attempt(attempts: "Attempts[Lease]", fetch: Callable[[Lease], T], judge: Callable[[T], Verdict], lease: Lease) -> Verdict:
    attempts.result = attempts.error = None
    try:
        attempts.result = fetch(lease)
        return judge(attempts.result)
    except Exception as error:  # pylint: disable=broad-except  # outcome raises it
        attempts.error = error
        return attempts.judge_error(error)


def _send(reports: List[Tuple[Lease, Verdict]]) -> None:
    for lease, verdict in reports:
        try:
            lease.report(verdict)
        except FAILURES as error:
            log.warning("a report of %s was not delivered: %s", lease.proxy_name, error)
