"""Opens URLs through a leased proxy with the standard library."""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any, Callable, Optional

from ._cut import Connections
from ._exceptions import OPENED
from ._lease import BaseLease


def opener(lease: BaseLease, connections: Connections, context: Optional[ssl.SSLContext]) -> urllib.request.OpenerDirector:
    """Returns an opener whose connections are cut with the lease."""
    out = urllib.request.OpenerDirector()
    for handler in (
        _Through(lease), _HTTPHandler(connections), _HTTPSHandler(connections, context),
        urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPRedirectHandler(), urllib.request.HTTPErrorProcessor(),
    ):
        out.add_handler(handler)
    return out


class _Through(urllib.request.ProxyHandler):
    """Sends everything through the proxy, despite no_proxy in the environment."""

    def __init__(self, lease: BaseLease) -> None:
        super().__init__({"http": lease.server, "https": lease.server})
        self._lease = lease

    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> None:  # pylint: disable=redefined-builtin
        if self._lease.username is not None:
            login = f"{self._lease.username}:{self._lease.password}"
            req.add_header("Proxy-authorization", "Basic " + base64.b64encode(login.encode()).decode())
        req.set_proxy(proxy.partition("://")[2], "http" if req.type == "http" else req.type)


class _HTTPHandler(urllib.request.HTTPHandler):
    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections

    def http_open(self, req: urllib.request.Request) -> Any:
        return _naming(req, lambda: self.do_open(_connection(http.client.HTTPConnection, self._connections), req))


class _HTTPSHandler(urllib.request.HTTPSHandler):
    def __init__(self, connections: Connections, context: Optional[ssl.SSLContext]) -> None:
        super().__init__(context=context)
        self._connections, self._tls = connections, context

    def https_open(self, req: urllib.request.Request) -> Any:
        return _naming(req, lambda: self.do_open(_connection(http.client.HTTPSConnection, self._connections), req, context=self._tls))


def _naming(req: urllib.request.Request, open_it: Callable[[], Any]) -> Any:
    """Opens a request, which may be that of a redirect, and notes its URL in an exception."""
    url = req.full_url if "://" in req.full_url else ""
    try:
        return open_it()
    except urllib.error.URLError as error:
        setattr(error, OPENED, url)
        raise


def _connection(base: Any, connections: Connections) -> Any:
    class Connection(base):  # type: ignore[misc]
        """A connection whose sockets are tracked: the plain one, and the TLS one that replaces it."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            create: Any = self._create_connection  # an attribute of http.client's connections
            self._create_connection: Any = lambda *a, **k: connections.track(create(*a, **k))

        def connect(self) -> None:
            super().connect()
            connections.track(self.sock)

    return Connection
