"""Leases proxies from the discovery API. One file, standard library only, Python 3.9 or later.

    client = Client("http://discovery:8090", token=os.environ["DISCOVERY_TOKEN"])
    with client.lease(target="shop.example") as lease:
        with lease.open("https://shop.example/") as answer:
            ...
        # or: requests.get(url, proxies=lease.proxies), httpx.Client(proxy=lease.proxy_url), ...

A lease is renewed in the background until it is closed. When it is lost, its connections are closed and
on_lost(lease, error) is called, from another thread. Connections of lease.open are closed with the lease; those of
other libraries are if you register them: session = lease.closing(requests.Session()).
"""

import base64
import datetime
import email.utils
import http.client
import json
import random
import secrets
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref

__all__ = ["Client", "Lease", "Error", "APIError", "BadAnswer", "NoProxy", "Lost", "Released", "judge"]

_CALL_TIMEOUT = 10.0  # seconds for a call, in addition to its wait
_MAX_WAIT = 30  # seconds, the longest wait that the API accepts
_MAX_ANSWER = 1 << 20
_MAX_RETRY_TIME = 20.0  # seconds for which reports and releases are retried: twice what a rollout of discovery takes


class Error(Exception):
    """The base class of all errors of this module."""


class APIError(Error):
    """An answer of the API with a status of 400 or above."""

    def __init__(self, status, headers, problem):
        self.status = status
        self.code = problem.get("error", "")
        self.message = problem.get("message", "")
        self.reason = problem.get("reason", "")  # of a lease that is gone
        self.counts = {k: v for k, v in problem.items() if isinstance(v, int) and k not in ("status", "retryAfterSeconds")}
        try:
            self.retry_after = max(0, int(headers.get("Retry-After", "0")))  # 0: a retry fails unless something changes
        except ValueError:
            self.retry_after = 0
        super().__init__(f"discovery answered {status} {self.code}: {self.message}")


class BadAnswer(Error):
    """A successful answer that is not from discovery, such as from an intermediary."""


class NoProxy(APIError):
    """No proxy was free within the patience."""


class Lost(Error):
    """The lease ended before it was closed."""


class Released(Error):
    """The lease was closed, with its connections."""


def judge(status=None, error=None):
    """Returns the result to report for a response's status or an exception, in the way that most sites mean it; None
    when it does not depend on the proxy. Captchas look different on every site: report those yourself."""
    if error is not None:
        error = getattr(error, "reason", error)  # of a urllib.error.URLError
        if isinstance(error, (ConnectionRefusedError, socket.gaierror)) or "Tunnel connection failed" in str(error):
            return "connect_error"
        return "target_timeout" if isinstance(error, (socket.timeout, TimeoutError)) else None
    if status == 429:
        return "rate_limited"
    if status in (403, 451):
        return "banned"
    return "ok" if status < 400 else None


_FAILURES = (APIError, BadAnswer, OSError, http.client.HTTPException)  # of a call


class Client:
    """A client of one discovery API. It is thread-safe."""

    def __init__(self, url, token="", timeout=_CALL_TIMEOUT):
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ValueError("url of discovery: want http://host:port or https://host")
        self._url = url.rstrip("/")
        self._token = token
        self._timeout = timeout
        # Calls to discovery bypass the environment's proxies.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def lease(self, selector=None, target="", ttl=300, session="", exclude=(), patience=60.0, on_lost=None):
        """Leases a proxy and returns a Lease, to be used in a with statement or closed. It waits up to patience seconds
        for a free proxy, and raises NoProxy when there is none by then. Retries have the same Idempotency-Key, so
        that no proxy stays leased because an answer was lost."""
        body = {"ttlSeconds": int(ttl)}
        for name, value in (("selector", selector), ("target", target), ("session", session), ("exclude", list(exclude))):
            if value:
                body[name] = value
        deadline = time.monotonic() + patience
        key = secrets.token_hex(16)
        attempt = 0
        while True:
            wait = int(min(_MAX_WAIT, max(0.0, deadline - time.monotonic())))
            sent = time.monotonic()
            try:
                grant, headers = self._call("POST", "/v1/leases", dict(body, wait=wait), {"Idempotency-Key": key}, wait)
                return Lease(self, grant, _deadline(grant, headers, sent), on_lost)
            except _FAILURES as error:
                pause = _pause(error, attempt)
                if not _retryable(error) or time.monotonic() + pause > deadline:
                    raise
            attempt += 1
            time.sleep(pause)

    def _call(self, method, path, body=None, headers=None, wait=0):
        request = urllib.request.Request(self._url + path, method=method, headers=dict(headers or {}))
        if self._token:
            request.add_unredirected_header("Authorization", "Bearer " + self._token)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=self._timeout + wait) as answer:
                return _object(answer.read(_MAX_ANSWER)), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                raise _api_error(error.code, error.headers, error.read(_MAX_ANSWER)) from None
        except urllib.error.URLError as error:
            where = self._url.rpartition("@")[2].rpartition("://")[2]  # what is before the @ is secret
            raise urllib.error.URLError(OSError(f"discovery at {where}: {error.reason}")) from error


def _object(text):
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadAnswer("the answer is no JSON object")
    return found


def _api_error(status, headers, text):
    try:
        problem = json.loads(text)
    except ValueError:  # an intermediary answered
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    kind = NoProxy if problem.get("error") == "no_match" else APIError
    return kind(status, headers, problem)


def _retryable(error):
    """Reports whether a retry of the same request may succeed."""
    return not isinstance(error, APIError) or error.retry_after > 0 or error.status >= 500


def _pause(error, attempt):
    """Seconds before a retry: the API's Retry-After, or exponential backoff."""
    if isinstance(error, APIError) and error.retry_after:
        return error.retry_after
    most = min(0.1 * 2 ** min(attempt, 10), 5.0)
    return most * random.uniform(0.5, 1)  # jitter, so that clients do not retry all at once


def _in_time(pause, left):
    """The pause, or half of the time left when the lease would expire within it: a retry before a Retry-After is over is
    better than the certain loss of the lease."""
    return pause if pause < left or left < 0.2 else left / 2


def _deadline(grant, headers, sent):
    """The earliest time, by the client's monotonic clock, at which the lease expires. The API's clock may differ:
    expiresAt counts from the answer's Date, which is rounded down to seconds."""
    for name, kind in (("leaseID", str), ("expiresAt", str), ("ttlSeconds", int)):
        if not isinstance(grant.get(name), kind):
            raise BadAnswer("the answer has no " + name)
    try:
        date = email.utils.parsedate_to_datetime(headers["Date"])
        expires = datetime.datetime.fromisoformat(grant["expiresAt"].replace("Z", "+00:00"))
    except (KeyError, TypeError, ValueError):
        return sent + grant["ttlSeconds"]
    return time.monotonic() + (expires - date).total_seconds() - 1


class Lease:
    """A proxy that is yours until the lease is closed."""

    def __init__(self, client, grant, deadline, on_lost=None):
        try:
            self.id = grant["leaseID"]
            self.proxy = grant["proxy"]  # name, namespace, host, port, attributes
            self.proxy_url = grant["proxyURL"]  # ready to use; may contain a password
            self.target = grant["target"]
            self.fencing_token = grant["fencingToken"]
            self._ttl = grant["ttlSeconds"]
        except KeyError as error:
            raise BadAnswer(f"the grant has no {error.args[0]}") from None
        self._client = client
        self._deadline = deadline
        self._on_lost = on_lost
        self._error = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._sockets = weakref.WeakSet()
        self._closing = []
        self._thread = threading.Thread(target=self._keep, name="lease-" + self.id, daemon=True)
        self._thread.start()

    def __repr__(self):  # without the password
        return f"<Lease {self.id} on {self.proxy['namespace']}/{self.proxy['name']}>"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def proxies(self):
        """The proxies argument of requests."""
        return {"http": self.proxy_url, "https": self.proxy_url}

    @property
    def error(self):
        """None while the lease is active, then Lost or Released."""
        return self._error

    @property
    def ended(self):
        """A threading.Event that is set when the lease was closed or lost."""
        return self._ended

    def closing(self, thing):
        """Calls thing.close() when the lease ends, and returns thing, such as a session. Its connections would otherwise
        go on using the proxy, and send requests for the next proxy through this one."""
        with self._lock:
            if self._error is None:
                self._closing.append(thing)
                return thing
        thing.close()
        raise self._error

    def open(self, url, data=None, timeout=30, context=None):
        """Opens a URL, or a urllib.request.Request, through the proxy as urllib.request.urlopen does."""
        if self.proxy_url.startswith("https:"):
            raise Error("urllib cannot speak TLS with a proxy; use a library that can, with lease.proxy_url")
        if self._error is not None:
            raise self._error
        handlers = [_Through(self.proxy_url), _HTTPHandler(self), _HTTPSHandler(self, context)]
        opener = urllib.request.OpenerDirector()
        for handler in handlers + [
            urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPRedirectHandler(), urllib.request.HTTPErrorProcessor(),
        ]:
            opener.add_handler(handler)
        return opener.open(url, data, timeout)

    def report(self, result, target=""):
        """Sends a result: ok, rate_limited, banned, captcha, target_timeout, proxy_timeout or connect_error. While
        discovery is down, such as in a rollout, it retries for 20 seconds. An APIError with the code
        too_many_cooldowns means that the report was dropped; retry after its retry_after."""
        body = {"result": result}
        if target:
            body["target"] = target
        self._retry("POST", self._path() + "/report", body)

    def close(self):
        """Closes all connections and releases the proxy. It is idempotent. When discovery stays unreachable the lease
        expires by itself."""
        first = self._end(Released("the lease was closed"))
        if self._thread is not threading.current_thread():
            self._thread.join()
        if first:
            self._give_back()

    def _give_back(self):
        try:
            self._retry("DELETE", self._path())
        except _FAILURES:
            pass  # it expires by itself

    def _retry(self, method, path, body=None):
        """Makes an idempotent call, and retries it while discovery is down."""
        deadline = time.monotonic() + _MAX_RETRY_TIME
        attempt = 0
        while True:
            try:
                self._client._call(method, path, body)
                return
            except _FAILURES as error:
                pause = _pause(error, attempt)
                if not _retryable(error) or time.monotonic() + pause > deadline:
                    raise
            attempt += 1
            time.sleep(pause)

    def _path(self):
        return "/v1/leases/" + urllib.parse.quote(self.id, safe="")

    def _keep(self):
        """Renews until the lease ends."""
        pause, attempt = self._ttl / 3, 0
        while True:
            left = self._deadline - time.monotonic()
            pause = _in_time(pause, left)
            if self._ended.wait(max(0.0, min(pause, left))):
                return
            if left <= pause:
                self._lose(Lost("the lease expired, since discovery could not be reached to renew it"))
                return
            try:
                sent = time.monotonic()
                renewed, headers = self._client._call("POST", self._path() + "/renew", {"ttlSeconds": self._ttl})
                if renewed.get("leaseID") != self.id:
                    raise BadAnswer("the answer is no renewal of this lease")
                self._deadline = _deadline(renewed, headers, sent)
                pause, attempt = self._ttl / 3, 0
            except _FAILURES as error:
                if isinstance(error, APIError) and error.code in ("unknown_lease", "lease_gone"):
                    lost = Lost(str(error))
                    lost.__cause__ = error
                    self._lose(lost)
                    return
                pause = _pause(error, attempt)
                attempt += 1

    def _lose(self, error):
        if self._end(error) and self._on_lost is not None:
            self._on_lost(self, error)

    def _end(self, error):
        """Ends the lease, once, and closes its connections."""
        with self._lock:
            if self._error is not None:
                return False
            self._error = error
            sockets, self._closing, closing = list(self._sockets), [], self._closing
        self._ended.set()
        for s in sockets:
            _cut(s)
        for thing in closing:
            try:
                thing.close()
            except Exception:  # pylint: disable=broad-except  # close the others, and release the proxy
                pass
        return True

    def _track(self, sock):
        with self._lock:
            self._sockets.add(sock)
            error = self._error
        if error is not None:
            _cut(sock)
            raise error
        return sock


def _cut(sock):
    """Closes a connection, also for threads that are reading from it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended already
    try:
        sock.close()
    except OSError:
        pass


class _Through(urllib.request.ProxyHandler):
    """Sends everything through the proxy, despite no_proxy in the environment."""

    def __init__(self, proxy_url):
        super().__init__({"http": proxy_url, "https": proxy_url})

    def proxy_open(self, request, proxy, type):  # pylint: disable=redefined-builtin
        parts = urllib.parse.urlsplit(proxy)
        if parts.username is not None:
            login = urllib.parse.unquote(parts.username) + ":" + urllib.parse.unquote(parts.password or "")
            request.add_header("Proxy-authorization", "Basic " + base64.b64encode(login.encode()).decode())
        request.set_proxy(parts.netloc.rpartition("@")[2], parts.scheme if request.type == "http" else request.type)
        return None


class _HTTPHandler(urllib.request.HTTPHandler):
    def __init__(self, lease):
        super().__init__()
        self._lease = lease

    def http_open(self, request):
        return self.do_open(_connection(http.client.HTTPConnection, self._lease), request)


class _HTTPSHandler(urllib.request.HTTPSHandler):
    def __init__(self, lease, context):
        super().__init__(context=context)
        self._lease, self._tls = lease, context

    def https_open(self, request):
        return self.do_open(_connection(http.client.HTTPSConnection, self._lease), request, context=self._tls)


def _connection(base, lease):
    class Connection(base):
        """A connection with sockets that the lease tracks: the plain one, and the TLS one that replaces it."""

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            create = self._create_connection
            self._create_connection = lambda *a, **k: lease._track(create(*a, **k))

        def connect(self):
            super().connect()
            lease._track(self.sock)

    return Connection
