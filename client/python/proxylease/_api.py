"""The HTTP calls to discovery: on an event loop, and blocking for the exit of the interpreter. Each call has a
connection of its own, which bypasses the environment's proxies."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import ssl
import urllib.parse
from typing import Any, Coroutine, Dict, Mapping, Optional, Tuple, TypeVar

from .errors import APIError, BadAnswer, NoProxy, Unreachable

T = TypeVar("T")
Answer = Tuple[Dict[str, Any], Mapping[str, str]]

_MAX_ANSWER = 1 << 20
_BLOCKING_TIMEOUT = 2.0  # seconds for one release at the exit of the interpreter


async def within_time(call: Coroutine[Any, Any, T], limit: float) -> T:
    """asyncio.wait_for, which before Python 3.12 loses a cancellation that comes at the same time as the result."""
    task = asyncio.get_running_loop().create_task(call)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # it counts as retrieved
    try:
        if (await asyncio.wait({task}, timeout=limit))[0]:
            return task.result()
        raise asyncio.TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


class API:
    """One discovery, with the token for it."""

    def __init__(self, url: str, token: str, timeout: float, ssl_context: Optional[ssl.SSLContext]) -> None:
        parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url of discovery: want http://host:port or https://host")
        if "@" in parts.netloc:
            raise ValueError("url of discovery: it contains a username; pass the token as token=")
        self.timeout = timeout
        self.where = parts.netloc
        self._host, self._prefix = parts.hostname, parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = (ssl_context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._token = token

    def __repr__(self) -> str:  # without the token
        return f"<API {self.where}>"

    async def call(
        self, method: str, path: str, body: Optional[Mapping[str, Any]] = None, key: str = "", wait: float = 0, within: Optional[float] = None
    ) -> Answer:
        """Makes one call. wait is for how long discovery may hold the response back, within bounds the whole call."""
        limit = self.timeout + wait if within is None else min(self.timeout + wait, within)
        try:
            status, headers, text = await within_time(self._exchange(self._request(method, path, body, key)), limit)
        except asyncio.TimeoutError:
            raise Unreachable(f"discovery at {self.where} did not respond within {limit:.1f} s") from None
        except (OSError, EOFError, http.client.HTTPException, ValueError, asyncio.LimitOverrunError) as error:
            raise Unreachable(f"discovery at {self.where}: {error or type(error).__name__}") from error
        return _decode(status, headers, text)

    def call_blocking(self, method: str, path: str) -> None:
        """Makes one call without an event loop, and ignores its response."""
        if self._tls is None:
            conn = http.client.HTTPConnection(self._host, self._port, timeout=_BLOCKING_TIMEOUT)
        else:
            conn = http.client.HTTPSConnection(self._host, self._port, timeout=_BLOCKING_TIMEOUT, context=self._tls)
        try:
            conn.request(method, self._prefix + path, headers=self._authorization())
            conn.getresponse().read(_MAX_ANSWER)
        finally:
            conn.close()

    def _authorization(self) -> Dict[str, str]:
        return {"Authorization": "Bearer " + self._token} if self._token else {}

    def _request(self, method: str, path: str, body: Optional[Mapping[str, Any]], key: str) -> bytes:
        headers = {"Host": self.where, "Connection": "close", "Accept": "application/json", **self._authorization()}
        payload = b""
        if body is not None:
            payload = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if method != "GET":
            headers["Content-Length"] = str(len(payload))
        if key:
            headers["Idempotency-Key"] = key
        lines = [f"{method} {self._prefix}{path} HTTP/1.1"] + [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise BadAnswer("the token, or the id of a lease, contains a line break")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + payload

    async def _exchange(self, request: bytes) -> Tuple[int, Mapping[str, str], bytes]:
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=_MAX_ANSWER)
        try:
            writer.write(request)
            await writer.drain()
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 1"):  # an informational response precedes the final one
                    break
            response = http.client.HTTPResponse(_Recorded(head))  # type: ignore[arg-type]
            response.begin()
            return response.status, {name.lower(): value for name, value in response.headers.items()}, await _body(reader, response)
        finally:
            writer.transport.abort()


class _Recorded:
    """The socket that http.client parses a response from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


async def _body(reader: asyncio.StreamReader, response: http.client.HTTPResponse) -> bytes:
    if response.status in (204, 304):
        return b""
    if response.chunked:
        return await _chunks(reader)
    if response.length is not None:
        return await reader.readexactly(min(response.length, _MAX_ANSWER))
    return await reader.read(-1)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    out = b""
    while len(out) < _MAX_ANSWER:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if size <= 0:
            break
        out += (await reader.readexactly(min(size, _MAX_ANSWER) + 2))[:-2]
    return out


def _decode(status: int, headers: Mapping[str, str], text: bytes) -> Answer:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = None
    if status >= 400:  # of an intermediary, if it is no JSON object
        problem = found if isinstance(found, dict) else {}
        raise (NoProxy if problem.get("error") == "no_match" else APIError)(status, headers, problem)
    if status >= 300:
        raise BadAnswer(f"discovery answered with a redirect ({status}): use the URL that it leads to")
    if not isinstance(found, dict):
        raise BadAnswer("the answer is no JSON object")
    return found, headers
