"""Finds out from an exception how far a request through a proxy came and what went wrong. Exceptions are known by their
classes, the stage by the functions that they passed through. No HTTP library is imported."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import ssl
import sys
import urllib.error
from dataclasses import dataclass, field
from typing import Any, Iterator, List, Mapping, Optional, Tuple, Type

from . import errors

# Stages. PROXY is before the tunnel, or the connection to a proxy for plain HTTP; TUNNEL is before the first byte of the
# response, RESPONSE after it.
PROXY, TUNNEL, RESPONSE = "proxy", "tunnel", "response"

OPENED = "proxylease_url"  # an attribute of exceptions that Lease.open raised
TIMEOUT, UNTRUSTED, CLOSED, LEASE_ENDED, FAILED = "timeout", "untrusted", "closed", "lease_ended", "failed"


@dataclass(frozen=True)
class Explanation:
    """What an exception means."""

    stage: str
    kind: str
    connect_status: Optional[int] = None  # of the response to CONNECT
    status: Optional[int] = None  # of the target's response
    headers: Mapping[str, str] = field(default_factory=dict)


def explain(error: BaseException, stage: Optional[str] = None) -> Optional[Explanation]:
    """Returns what an exception means, or None if no connection caused it."""
    chain = list(_chain(error))
    frames = _Frames(chain)
    if any(isinstance(e, (errors.Released, errors.Lost)) for e in chain):
        return Explanation(stage or frames.stage(TUNNEL), LEASE_ENDED)
    refused = _connect_status(chain, frames)
    if refused is not None:
        return Explanation(PROXY, FAILED, connect_status=refused)
    answered = None if frames.in_connect else _response_of(chain)
    if answered is not None:
        return Explanation(RESPONSE, FAILED, status=answered[0], headers=answered[1])
    gave_up = next((e for e in chain if isinstance(e, _classes("urllib3.exceptions:ResponseError"))), None)
    if gave_up is not None:  # urllib3 has retried what the site answered, or followed its redirects
        last = _LAST_STATUS.search(str(gave_up))
        return Explanation(RESPONSE, FAILED, status=int(last.group(1))) if last else None
    kind = _kind(chain)
    if kind == FAILED and _is_callers_mistake(chain):
        return None
    if stage is None:
        stage = frames.stage(_stage_by_class(chain))
    return Explanation(stage, kind)


def url_of(error: BaseException) -> str:
    """The URL of the request that failed, which may be that of a redirect; empty if the library does not give it."""
    for e in _chain(error):
        for holder, name in (("request", "url"), ("request_info", "url")):
            try:
                url = str(getattr(getattr(e, holder, None), name, ""))
            except RuntimeError:  # of httpx, without a request
                continue
            if "://" in url:
                return url
        if isinstance(e, _classes("urllib3.exceptions:MaxRetryError")):  # plain requests have the proxy's pool, and whole URLs
            pool, path = getattr(e, "pool", None), str(getattr(e, "url", ""))
            return path if "://" in path else f"{getattr(pool, 'scheme', 'https')}://{getattr(pool, 'host', '')}"
        if isinstance(e, urllib.error.URLError):
            return str(getattr(e, "url", None) or getattr(e, OPENED, ""))
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that caused it, the outermost first: causes, contexts, and what libraries wrap."""
    seen: List[int] = []
    waiting: List[Any] = [error]
    while waiting:
        e = waiting.pop(0)
        e = getattr(e, "value", e) if not isinstance(e, BaseException) else e  # of a Twisted Failure
        if not isinstance(e, BaseException) or id(e) in seen:
            continue
        seen.append(id(e))
        yield e
        wrapped = [getattr(e, name, None) for name in ("value", "reason", "original_error", "os_error", "certificate_error")]
        reasons = getattr(e, "reasons", None)  # of Twisted's ResponseFailed
        waiting += [*wrapped, *e.args, *(reasons if isinstance(reasons, (list, tuple)) else ()), e.__cause__, e.__context__]


def _classes(*names: str) -> Tuple[Type[BaseException], ...]:
    """The exception classes of these names, "module:Class", whose modules are loaded: an exception of another cannot exist."""
    found = []
    for name in names:
        module, _, cls = name.partition(":")
        value = getattr(sys.modules.get(module), cls, None)
        if isinstance(value, type) and issubclass(value, BaseException):
            found.append(value)
    return tuple(found)


_TUNNEL_ERRORS = (
    "httpcore:ProxyError", "httpx:ProxyError", "aiohttp:ClientHttpProxyError", "scrapy.core.downloader.handlers.http11:TunnelError",
)
_TIMEOUTS = (
    "urllib3.exceptions:TimeoutError", "requests:Timeout", "httpx:TimeoutException", "httpcore:TimeoutException", "aiohttp:ServerTimeoutError",
    "twisted.internet.error:TimeoutError", "twisted.internet.defer:TimeoutError", "scrapy.exceptions:DownloadTimeoutError",
)
_REFUSED = ("urllib3.exceptions:NewConnectionError",)  # a timeout by its class in urllib3 1
_UNTRUSTED = ("aiohttp:ClientConnectorCertificateError", "service_identity:VerificationError")
_CLOSED = (
    "urllib3.exceptions:ProtocolError", "httpx:RemoteProtocolError", "httpcore:RemoteProtocolError", "httpx:ReadError", "aiohttp:ServerDisconnectedError",
    "twisted.internet.error:ConnectionClosed", "twisted.internet.error:ConnectionLost", "twisted.web.client:ResponseNeverReceived",
)
# They come after the first byte of the response.
_RESPONSE_ERRORS = (
    "requests:exceptions.ChunkedEncodingError", "requests.exceptions:ChunkedEncodingError", "requests.exceptions:ContentDecodingError",
    "urllib3.exceptions:IncompleteRead", "urllib3.exceptions:DecodeError", "aiohttp:ClientPayloadError", "httpx:DecodingError",
    "twisted.web.client:ResponseFailed", "scrapy.exceptions:ResponseDataLossError",
)
# Mistakes of the caller, and what an exception of the calling code is.
_MISTAKES = (TypeError, ValueError, AttributeError, LookupError, AssertionError, NameError, RuntimeError, MemoryError)
_MORE_MISTAKES = (
    "requests:TooManyRedirects", "httpx:TooManyRedirects", "httpx:InvalidURL", "httpx:UnsupportedProtocol", "aiohttp:TooManyRedirects",
    "scrapy.exceptions:IgnoreRequest", "scrapy.exceptions:NotSupported", "scrapy.exceptions:StopDownload", "scrapy.exceptions:CloseSpider",
    "scrapy.exceptions:UnsupportedURLSchemeError", "scrapy.exceptions:DownloadCancelledError", "twisted.web.error:SchemeNotSupported",
)


def _is_callers_mistake(chain: List[BaseException]) -> bool:
    outer = chain[0]
    if isinstance(outer, (http.client.InvalidURL, asyncio.CancelledError) + _classes(*_MORE_MISTAKES)):
        return True
    return isinstance(outer, _MISTAKES) and not isinstance(outer, ssl.CertificateError) or not isinstance(outer, Exception)


def _kind(chain: List[BaseException]) -> str:
    if any(isinstance(e, (ssl.SSLCertVerificationError,) + _classes(*_UNTRUSTED)) or _openssl_verify(e) for e in chain):
        return UNTRUSTED
    if any(isinstance(e, (ConnectionRefusedError, socket.gaierror) + _classes(*_REFUSED)) and not isinstance(e.__cause__, TimeoutError) for e in chain):
        return FAILED
    if any(isinstance(e, (TimeoutError, socket.timeout, asyncio.TimeoutError) + _classes(*_TIMEOUTS)) for e in chain):
        return TIMEOUT
    closed = (ConnectionError, http.client.RemoteDisconnected, http.client.IncompleteRead, EOFError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    if any(isinstance(e, closed + _classes(*_CLOSED)) for e in chain):
        return CLOSED
    return FAILED


def _openssl_verify(error: BaseException) -> bool:
    """pyOpenSSL, and so Twisted, has one class for all errors, with OpenSSL's reasons in its arguments."""
    return isinstance(error, _classes("OpenSSL.SSL:Error")) and "certificate verify failed" in str(error.args)


_HTTP_CLIENT_REFUSAL = re.compile(r"Tunnel connection failed: (\d{3})\b")
_LAST_STATUS = re.compile(r"too many (\d{3}) error responses")
_STATUS = re.compile(r"(?:^|'status': )(\d{3})\b")


def _connect_status(chain: List[BaseException], frames: "_Frames") -> Optional[int]:
    """The status with which the proxy refused CONNECT."""
    for e in chain:
        if isinstance(e, OSError):
            found = _HTTP_CLIENT_REFUSAL.search(str(e))
            if found:
                return int(found.group(1))
        if isinstance(e, _classes(*_TUNNEL_ERRORS)):
            status = getattr(e, "status", None)
            if isinstance(status, int):
                return status
            texts = _STATUS.findall(str(e)) if "[{" in str(e) or str(e)[:3].isdigit() else []
            if texts:
                return int(texts[-1])
    return None


def _response_of(chain: List[BaseException]) -> Optional[Tuple[int, Mapping[str, str]]]:
    """The response that an exception such as that of raise_for_status stands for."""
    outer = chain[0]
    if isinstance(outer, urllib.error.HTTPError):
        return outer.code, dict((outer.headers or {}).items())
    if isinstance(outer, _classes("aiohttp:ClientResponseError")):
        return outer.status, outer.headers or {}  # type: ignore[attr-defined]
    if isinstance(outer, _classes("requests:HTTPError", "httpx:HTTPStatusError")):
        response = getattr(outer, "response", None)
        if response is not None:
            return response.status_code, response.headers
    return None


def _stage_by_class(chain: List[BaseException]) -> str:
    """The stage of exceptions that passed through no known function."""
    if any(isinstance(e, (ssl.SSLError, http.client.IncompleteRead) + _classes(*_RESPONSE_ERRORS)) for e in chain):
        return RESPONSE if not any(isinstance(e, ssl.SSLError) for e in chain) else TUNNEL
    return PROXY


# The functions of libraries in which a request is at a stage. The first stage that has one counts.
_DIALING = {
    ("socket", "create_connection"), ("urllib3", "create_connection"), ("urllib3", "_connect_tls_proxy"), ("asyncio", "create_connection"),
    ("asyncio", "sock_connect"), ("asyncio", "open_connection"), ("aiohttp", "_create_direct_connection"), ("httpcore", "connect_tcp"),
    ("aiohttp", "_wrap_create_connection"), ("aiohappyeyeballs", "start_connection"),
}
_IN_TUNNEL = {
    ("ssl", "do_handshake"), ("ssl", "wrap_socket"), ("http", "getresponse"), ("http", "begin"), ("aiohttp", "_start_tls_connection"),
    ("aiohttp", "start"), ("httpcore", "start_tls"), ("httpcore", "_receive_response_headers"), ("anyio", "start_tls"),
    ("aiohttp", "_request"), ("httpcore", "handle_request"), ("httpcore", "handle_async_request"),
}
_IN_BODY = {
    ("http", "read"), ("http", "_readall_chunked"), ("urllib3", "stream"), ("urllib3", "read"), ("aiohttp", "text"), ("aiohttp", "read"),
    ("httpcore", "_receive_response_body"),
}


class _Frames:
    """The functions that exceptions passed through."""

    def __init__(self, chain: List[BaseException]) -> None:
        self._passed = set()
        self.in_connect = False  # an HTTP library waits for the response to CONNECT
        for e in chain:
            trace = e.__traceback__
            while trace is not None:
                frame = trace.tb_frame
                module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
                self._passed.add((module, frame.f_code.co_name))
                if frame.f_code.co_name == "_tunnel" or module in ("httpcore", "aiohttp") and _is_connect(frame.f_locals):
                    self.in_connect = True
                trace = trace.tb_next

    def stage(self, default: str) -> str:
        """The stage by the functions, or the default."""
        if self.in_connect or self._passed & _DIALING:
            return PROXY
        if self._passed & _IN_TUNNEL:
            return TUNNEL
        return RESPONSE if self._passed & _IN_BODY else default


def _is_connect(local: Mapping[str, Any]) -> bool:
    """Whether a function of httpcore or aiohttp handles a CONNECT request."""
    methods = (getattr(local.get(name), "method", None) for name in ("request", "self"))
    return any(method in (b"CONNECT", "CONNECT") for method in methods)
