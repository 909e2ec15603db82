"""Cuts connections when their lease ends, also those that a library has in use at that time."""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Set, TypeVar

log = logging.getLogger("proxylease")


T = TypeVar("T")


@dataclass(frozen=True)
class _Connection:
    """A TCP connection. TLS libraries move its descriptor from one object to another, so that the descriptor and the
    addresses identify it."""

    fd: int
    local: Any
    remote: Any

    @classmethod
    def of(cls, sock: Any) -> "_Connection":
        """The connection of a socket. One that is closed already has the descriptor -1."""
        sock = getattr(sock, "socket", sock)  # of urllib3's TLS within TLS
        try:
            return cls(sock.fileno(), sock.getsockname(), sock.getpeername())
        except OSError:
            return cls(-1, None, None)

    def is_open(self) -> bool:
        """Whether the descriptor still is that of this connection."""
        return self._do(lambda _: None)

    def cut(self) -> None:
        """Shuts the connection down, which also ends reads in other threads. Its owner closes it."""
        self._do(lambda sock: sock.shutdown(socket.SHUT_RDWR))

    def _do(self, act: Callable[[socket.socket], None]) -> bool:
        try:
            with socket.socket(fileno=os.dup(self.fd)) as sock:
                if (sock.getsockname(), sock.getpeername()) != (self.local, self.remote):
                    return False
                act(sock)
                return True
        except (OSError, ValueError, OverflowError):
            return False  # it has ended already


class Connections:
    """The connections of one lease. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: Optional[BaseException] = None
        self._open: Set[_Connection] = set()
        self._things: List[Any] = []
        self._prune_at = 64

    def track(self, sock: T) -> T:
        """Cuts the connection of a socket when the lease ends, and returns it. After the end it cuts it at once and raises."""
        conn = _Connection.of(sock)
        with self._lock:
            ended = self._ended
            if ended is None:
                if len(self._open) >= self._prune_at:
                    self._open = {c for c in self._open if c.is_open()}
                    self._prune_at = max(64, 2 * len(self._open))
                self._open.add(conn)
                return sock
        conn.cut()
        raise ended

    def add(self, thing: Any) -> Any:
        """Ends thing with the lease, and returns it. The connections of sessions that are known are cut. Their close() is
        not called: another thread may be using them, and a descriptor that is closed under it can be that of a stranger
        a moment later. Other things are closed."""
        with self._lock:
            ended = self._ended
            if ended is None and not _instrument(thing, self.track):
                self._things.append(thing)
        if ended is not None:
            _close(thing)
            raise ended
        return thing

    def end(self, error: BaseException) -> List[Any]:
        """Cuts the connections, and returns the things to close."""
        with self._lock:
            self._ended = error
            connections, things = self._open, self._things
            self._open, self._things = set(), []
        for conn in connections:
            conn.cut()
        return things


def close_all(things: List[Any]) -> None:
    """Closes things, all of them, whatever one raises."""
    for thing in things:
        _close(thing)


def _close(thing: Any) -> None:
    try:
        thing.close()
    except Exception as error:  # pylint: disable=broad-except  # the others are closed nevertheless
        log.warning("%s raised at its close: %r", type(thing).__name__, error)


Track = Callable[[Any], Any]


def _instrument(thing: Any, track: Track) -> bool:
    """Has the connections of a session tracked, by the means that its library offers. False for what is no session."""
    if hasattr(thing, "event_hooks") and hasattr(thing, "build_request"):  # httpx
        _httpx(thing, track)
    elif hasattr(thing, "adapters"):  # requests
        for adapter in thing.adapters.values():
            _requests(adapter, track)
    elif hasattr(thing, "pool_classes_by_scheme"):  # urllib3
        _urllib3(thing, track)
    else:
        return False
    return True


def _urllib3(manager: Any, track: Track) -> None:
    manager.pool_classes_by_scheme = {scheme: _pool(cls, track) for scheme, cls in manager.pool_classes_by_scheme.items()}


def _pool(cls: Any, track: Track) -> Any:
    class Connection(cls.ConnectionCls):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            track(self.sock)

        def _tunnel(self, *args: Any, **kwargs: Any) -> Any:
            track(self.sock)
            return super()._tunnel(*args, **kwargs)

    return type(cls.__name__, (cls,), {"ConnectionCls": Connection})


def _requests(adapter: Any, track: Track) -> None:
    make, seen = adapter.proxy_manager_for, set()

    @functools.wraps(make)
    def proxy_manager_for(*args: Any, **kwargs: Any) -> Any:
        manager = make(*args, **kwargs)
        if id(manager) not in seen:
            seen.add(id(manager))
            _urllib3(manager, track)
        return manager

    adapter.proxy_manager_for = proxy_manager_for


def _httpx(client: Any, track: Track) -> None:
    def note(name: str, info: Any) -> None:
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            track(info["return_value"].get_extra_info("socket"))

    def hook(request: Any) -> None:
        request.extensions = {**request.extensions, "trace": note}

    hooks = client.event_hooks
    hooks["request"] = [*hooks.get("request", ()), hook]
    client.event_hooks = hooks
