"""Acquires, renews and releases the leases of one client on one event loop. All renewals are the work of one task."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import os
import random
import secrets
import time
import urllib.parse
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from . import errors
from ._api import API, within_time
from ._want import Grant, Want, deadline

log = logging.getLogger("proxylease")

RENEWALS_PER_TTL = 3
MAX_RENEWAL_PAUSE = 30.0  # seconds; a renewal also shows whether the proxy is usable
MAX_WAIT = 30  # seconds, the longest wait that the API accepts
MAX_RETRY_TIME = 20.0  # seconds for which reports and releases are retried: twice what a rollout of discovery takes

_CLOSED = "the client was closed: make another one"

FAILURES = (errors.APIError, errors.BadAnswer, errors.Unreachable)


class Held:
    """A lease that is renewed until it ends."""

    def __init__(self, grant: Grant, expires: float) -> None:
        self.grant = grant
        self.deadline = expires
        self.due = 0.0  # when it is renewed, or expires
        self.attempt = 0  # failed renewals in a row
        self.order = asyncio.Lock()  # a report precedes the release: discovery accepts none afterwards
        self.error: Optional[errors.Error] = None  # Lost or Released
        self.released = False  # discovery has it back
        self.status: Mapping[str, Any] = {}  # the last proxyStatus
        self.on_end: Callable[[errors.Error], None] = lambda _: None
        self.on_unusable: Callable[[], None] = lambda: None

    @property
    def usable(self) -> bool:
        """Whether the lease is active and its proxy works, as far as discovery knows."""
        return self.error is None and self.status.get("usable") is not False

    @property
    def path(self) -> str:
        return "/v1/leases/" + urllib.parse.quote(self.grant.id, safe="")

    def end(self, error: errors.Error) -> bool:
        """Ends the lease once, and calls on_end."""
        if self.error is not None:
            return False
        self.error = error
        on_end, self.on_end, self.on_unusable = self.on_end, lambda _: None, lambda: None
        on_end(error)
        return True


class Keeper:
    """The leases of one client. Its methods must be called on one event loop."""

    def __init__(self, api: API) -> None:
        self.api = api
        self._held: Dict[str, Held] = {}
        self._queue: List[Tuple[float, int, Held]] = []  # by due time
        self._count = itertools.count()
        self._task: Optional["asyncio.Task[None]"] = None
        self._wake: Optional[asyncio.Event] = None
        self._calls: Set["asyncio.Task[None]"] = set()
        self._acquiring: Set["asyncio.Task[Held]"] = set()
        self._closed = False
        self._paths: Dict[str, str] = {}  # of leases to give back when the loop or the interpreter ends first
        weakref.finalize(self, _give_back, api, self._paths, os.getpid())

    async def acquire(self, want: Want, patience: float) -> Held:
        """Leases a proxy. It polls with long waits until the patience is over. Whatever ends it leaves no lease behind."""
        if self._closed:
            raise errors.ClientClosed(_CLOSED)
        task = asyncio.get_running_loop().create_task(self._acquire(want, patience))
        self._acquiring.add(task)
        task.add_done_callback(self._acquiring.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:  # granted at the same time
                await self._release_in(task.result(), 2.0)
            if self._closed:
                raise errors.ClientClosed(_CLOSED) from None
            raise

    async def _acquire(self, want: Want, patience: float) -> Held:
        """Retries have the same Idempotency-Key, so that no proxy stays leased because an answer was lost."""
        body, key = want.body(), secrets.token_hex(16)
        try:
            return await self._poll(want, patience, body, key)
        except BaseException as error:  # such as the end of the task
            if _may_be_granted(error):
                await self._disown(dict(body, wait=0), key)
            raise

    async def _poll(self, want: Want, patience: float, body: Mapping[str, Any], key: str) -> Held:
        end, attempt = time.monotonic() + patience, 0
        while True:
            wait = int(min(MAX_WAIT, max(0.0, end - time.monotonic())))
            sent = time.monotonic()
            try:
                answer, headers = await self.api.call("POST", "/v1/leases", dict(body, wait=wait), key, wait)
                return await self._hold(answer, deadline(answer, headers, sent), want)
            except FAILURES as error:
                left = end - time.monotonic()
                pause = _acquire_pause(error, attempt, time.monotonic() - sent < max(wait, 1) / 2)
                if isinstance(error, errors.NoProxy):
                    pause = min(pause, left)  # Retry-After is the latest time at which there is a proxy
                if not _may_acquire(error, want) or left <= 0 or pause > left:
                    raise
            attempt += 1
            await asyncio.sleep(pause)

    async def _hold(self, answer: Mapping[str, Any], expires: float, want: Want) -> Held:
        held = Held(Grant(answer), expires)
        if self._closed:
            await self._release(held, 5)
            raise errors.ClientClosed(_CLOSED)
        if want.schemes and held.grant.scheme not in want.schemes:
            await self._release(held, 5)
            raise errors.UnsupportedProxy(
                f"proxy {held.grant.proxy_name} has the scheme {held.grant.scheme!r}, this client can use {', '.join(want.schemes)}: "
                "update discovery, or lease with another selector"
            )
        self._held[held.grant.id] = held
        self._paths[held.grant.id] = held.path
        self._schedule(held, renewal_pause(held.grant.ttl))
        log.info("leased %s for %s", held.grant.proxy_name, held.grant.target or "any site")
        return held

    async def _disown(self, body: Mapping[str, Any], key: str) -> None:
        """Releases what an abandoned request may have been granted."""
        try:
            answer, _ = await self.api.call("POST", "/v1/leases", body, key, within=2)
            if answer.get("leaseID"):
                await self.api.call("DELETE", "/v1/leases/" + urllib.parse.quote(str(answer["leaseID"]), safe=""), within=2)
        except FAILURES:
            pass  # nothing was granted, or it expires

    async def report(self, held: Held, result: str, target: str = "", retry_after: Optional[int] = None) -> None:
        """Sends a result. While discovery is down, such as in a rollout, it retries for 20 seconds."""
        body: Dict[str, Any] = {"result": result}
        if target:
            body["target"] = target
        if retry_after:
            body["retryAfterSeconds"] = retry_after
        async with held.order:
            await self._retry("POST", held.path + "/report", body, MAX_RETRY_TIME)
        log.info("reported %s of %s%s", result, held.grant.proxy_name, " for " + target if target else "")

    async def release(self, held: Held) -> None:
        """Ends the lease and gives the proxy back. It is idempotent."""
        if held.end(errors.Released("the lease was closed")):
            await self._release(held, MAX_RETRY_TIME)

    async def close(self) -> None:
        """Releases all leases, ends the renewals, and ends requests for leases with ClientClosed."""
        self._closed = True
        acquiring = set(self._acquiring)
        for task in acquiring:
            task.cancel()
        if acquiring:
            await asyncio.wait(acquiring)
        for held in self._held.values():
            held.end(errors.Released("the client was closed"))
        await asyncio.gather(*(self._release(held, MAX_RETRY_TIME) for held in list(self._held.values())))  # also those under way
        if self._task is not None:
            self._task.cancel()
        if self._calls:
            await asyncio.wait(set(self._calls), timeout=MAX_RETRY_TIME)

    async def _release(self, held: Held, retry_time: float) -> None:
        try:
            async with held.order:
                if not held.released:
                    await self._retry("DELETE", held.path, None, retry_time)
                held.released = True
        except FAILURES as error:
            log.warning("lease of %s is not released and expires by itself: %s", held.grant.proxy_name, error)
        self._forget(held)

    def _forget(self, held: Held) -> None:
        self._held.pop(held.grant.id, None)
        self._paths.pop(held.grant.id, None)

    async def _retry(self, method: str, path: str, body: Optional[Mapping[str, Any]], retry_time: float) -> None:
        """Makes an idempotent call, and retries it while discovery is down."""
        end, attempt = time.monotonic() + retry_time, 0
        while True:
            try:
                await self.api.call(method, path, body)
                return
            except FAILURES as error:
                pause = _pause(error, attempt)
                if not retryable(error) or time.monotonic() + pause > end:
                    raise
            attempt += 1
            await asyncio.sleep(pause)

    def _schedule(self, held: Held, pause: float) -> None:
        """Sets the next renewal of a lease, at the latest for when it expires."""
        now = time.monotonic()
        left = held.deadline - now
        held.due = now + max(0.0, min(_in_time(pause, left), left))
        heapq.heappush(self._queue, (held.due, next(self._count), held))
        if self._task is None or self._task.done():
            self._wake = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif self._wake is not None:
            self._wake.set()

    async def _run(self) -> None:
        """Renews leases when they are due. Ends with the last lease, or with the event loop, which cancels it: then it
        releases the leases that are left."""
        try:
            while self._held and (self._queue or self._calls):  # a renewal under way sets the next one
                await self._sleep(self._queue[0][0] - time.monotonic() if self._queue else 1.0)
                while self._queue and self._queue[0][0] <= time.monotonic():
                    due, _, held = heapq.heappop(self._queue)
                    if held.error is None and held.due == due:
                        self._spawn(self._renew(held))
                    # else: it has ended, or was scheduled anew
        except asyncio.CancelledError:
            await asyncio.gather(*(self._release_in(held, 2.0) for held in list(self._held.values())))
            raise

    async def _release_in(self, held: Held, seconds: float) -> None:
        if held.end(errors.Released("the event loop ended")):
            try:
                await self.api.call("DELETE", held.path, within=seconds)
                self._forget(held)
            except FAILURES as error:
                log.warning("lease of %s is not released and expires by itself: %s", held.grant.proxy_name, error)

    async def _sleep(self, seconds: float) -> None:
        assert self._wake is not None
        self._wake.clear()
        try:
            await within_time(self._wake.wait(), max(0.0, seconds))
        except asyncio.TimeoutError:
            pass

    def _spawn(self, call: Any) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _renew(self, held: Held) -> None:
        sent = time.monotonic()
        left = held.deadline - sent
        if left <= 0:
            self._lose(held, errors.Lost("the lease expired, since discovery could not be reached to renew it"))
            return
        try:
            answer, headers = await self.api.call("POST", held.path + "/renew", {"ttlSeconds": held.grant.ttl}, within=left)
            if answer.get("leaseID") != held.grant.id:
                raise errors.BadAnswer("the answer is no renewal of this lease")
            held.deadline, held.attempt = deadline(answer, headers, sent), 0
            pause = renewal_pause(held.grant.ttl)
            self._observe(held, answer.get("proxyStatus"))
        except Exception as error:  # pylint: disable=broad-except  # a lease that is not renewed expires, and is lost
            if isinstance(error, errors.APIError) and error.code in ("unknown_lease", "lease_gone"):
                lost = errors.Lost(str(error))
                lost.__cause__ = error
                self._lose(held, lost)
                return
            log.warning("renewal of the lease of %s failed, it is retried: %s", held.grant.proxy_name, error)
            pause = _pause(error, held.attempt)
            held.attempt += 1
        if held.error is None:
            self._schedule(held, pause)

    def _observe(self, held: Held, status: Any) -> None:
        """Calls on_unusable when discovery has stopped granting the proxy."""
        if not isinstance(status, dict):
            return
        before, held.status = held.usable, status
        if before and not held.usable:
            log.info("proxy %s is not usable any more: %s", held.grant.proxy_name, status.get("message") or status.get("reason"))
            held.on_unusable()

    def _lose(self, held: Held, lost: errors.Lost) -> None:
        self._forget(held)
        log.warning("lease of %s is lost: %s", held.grant.proxy_name, lost)
        held.end(lost)


def _give_back(api: API, paths: Mapping[str, str], pid: int) -> None:
    """Releases what a collected client, or a loop that has ended, left behind."""
    if os.getpid() != pid:
        return  # the leases are the parent's
    for path in list(paths.values()):
        try:
            api.call_blocking("DELETE", path)
        except Exception as error:  # pylint: disable=broad-except  # the others are still to be released
            log.warning("discovery at %s cannot be reached: leases expire by themselves: %s", api.where, error)
            return


def retryable(error: BaseException) -> bool:
    """Whether a retry of the same request may succeed."""
    return not isinstance(error, errors.APIError) or error.retry_after > 0 or error.status >= 500


def renewal_pause(ttl: float) -> float:
    """Seconds between two renewals."""
    return min(ttl / RENEWALS_PER_TTL, MAX_RENEWAL_PAUSE)


def _may_be_granted(error: BaseException) -> bool:
    """Whether a request for a lease that ended so may have been granted one that is not released."""
    if isinstance(error, (errors.UnsupportedProxy, errors.ClientClosed)):
        return False  # _hold has released it
    return not isinstance(error, errors.APIError) or error.status >= 500


def _may_acquire(error: BaseException, want: Want) -> bool:
    return retryable(error) or (want.wait_for_match and isinstance(error, errors.NoProxy))


def _backoff(attempt: int) -> float:
    return min(0.1 * (1 << min(attempt, 10)), 5.0) * random.uniform(0.5, 1)  # jitter, so that clients do not retry all at once


def _pause(error: BaseException, attempt: int) -> float:
    """Seconds before a retry: the API's Retry-After, or exponential backoff."""
    if isinstance(error, errors.APIError) and error.retry_after:
        return float(error.retry_after)
    return _backoff(attempt)


def _acquire_pause(error: BaseException, attempt: int, early: bool) -> float:
    """Seconds before the next request for a lease. One that waited in vain is repeated almost at once: a proxy may be
    released before Retry-After. An answer that came early, such as at the limit of waiting requests, is backed off."""
    if isinstance(error, errors.NoProxy):
        return _backoff(attempt) if early or attempt == 0 else 0.05
    return _pause(error, attempt)


def _in_time(pause: float, left: float) -> float:
    """The pause, or half of the time left when the lease would expire within it: a retry before a Retry-After is over is
    better than the certain loss of the lease."""
    return pause if pause < left or left < 0.2 else left / 2
