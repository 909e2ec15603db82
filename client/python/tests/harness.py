"""What the tests share: a scripted discovery, proxies and sites on loopback, and a certificate."""

import base64
import contextlib
import datetime
import http.server
import json
import os
import select
import socket
import socketserver
import ssl
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SITE = "site.example"  # a name that only the proxies can reach


def until(condition, seconds=20):
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("condition not met in time")
        time.sleep(0.01)


class Server(socketserver.ThreadingTCPServer):
    """A server that runs serve(conn) for each connection, and counts them."""

    allow_reuse_address, daemon_threads, block_on_close, request_queue_size = True, True, False, 128

    def __init__(self, serve):
        self.serve, self.times, self.open = serve, [], set()
        super().__init__(("127.0.0.1", 0), None)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request, client_address):
        self.times.append(time.monotonic())
        self.open.add(request)
        try:
            self.serve(request)
        except OSError:
            pass
        finally:
            self.open.discard(request)

    def handle_error(self, *_):
        pass

    def close(self):
        self.shutdown()
        self.server_close()
        for conn in list(self.open):
            with contextlib.suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)


def head(conn):
    """Reads the head of a request; b"" at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = conn.recv(65536)
        if not more:
            return b""
        data += more
    return data


def freeze(conn):
    """Reads until the other side closes, and never writes."""
    while conn.recv(65536):
        pass


def response(status, text=b"reached", headers=""):
    return b"HTTP/1.1 %d X\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(text), headers.encode(), text)


class Certificates:
    """A certificate for SITE and localhost, which signs itself, made once per process with openssl."""

    _folder = _server = None
    _lock = threading.Lock()

    @classmethod
    def folder(cls):
        if cls._folder is None:
            cls._folder = tempfile.TemporaryDirectory()
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=" + SITE,
                 "-addext", "subjectAltName=DNS:%s,DNS:*.%s,DNS:localhost,IP:127.0.0.1" % (SITE, SITE),
                 "-keyout", cls._folder.name + "/key.pem", "-out", cls._folder.name + "/cert.pem"],
                check=True, capture_output=True,
            )  # fmt: skip
        return cls._folder.name

    @classmethod
    def file(cls):
        return cls.folder() + "/cert.pem"

    @classmethod
    def server(cls):
        with cls._lock:
            if cls._server is None:
                cls._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                cls._server.load_cert_chain(cls.file(), cls.folder() + "/key.pem")
            return cls._server

    @classmethod
    def client(cls):
        return ssl.create_default_context(cafile=cls.file())


def site(answer):
    """What serves a TLS site over a connection: answer(path, headers) returns a response, or None to keep silent."""

    def serve(conn):
        with Certificates.server().wrap_socket(conn, server_side=True) as tls:
            plain_site(answer)(tls)

    return serve


def plain_site(answer):
    def serve(conn):
        while True:
            request = head(conn)
            if not request:
                return
            url = request.split(b" ")[1].decode()
            path = "/" + url.split("/", 3)[3] if "://" in url else url
            text = answer(path, request.decode("latin-1").lower())
            if text is None:
                return freeze(conn)
            conn.sendall(text)
            if b"connection: close" in request.lower() or text == b"":
                return None

    return serve


def proxy(tunnel, connect=None, login=None, host=None):
    """What serves a proxy: it answers CONNECT with connect (bytes, or None for 200) and then has tunnel(conn) serve. A plain
    request is served by tunnel as well."""

    def serve(conn):
        first = conn.recv(8, socket.MSG_PEEK)
        if not first.startswith(b"CONNECT"):
            return tunnel(conn)
        request = head(conn)
        if login and base64.b64encode(login.encode()) not in request:
            return conn.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        if callable(connect):
            return connect(conn)
        conn.sendall(connect or b"HTTP/1.1 200 OK\r\n\r\n")
        return tunnel(conn) if connect is None else None

    return serve


class Discovery:
    """A scripted discovery. It grants proxies (name -> port) by the rules of the API as far as tests need them: rests,
    exclude, schemes, maxLeases. Faults: before(method, path, body) may return (status, headers, body) or raise Hangup."""

    class Hangup(Exception):
        pass

    def __init__(self, proxies=None, slots=1, login="", scheme="http"):
        self.proxies, self.slots, self.login, self.scheme = dict(proxies or {"p0": 1}), slots, login, scheme
        self.lock = threading.Condition()
        self.leases, self.rests, self.reports, self.requests, self.released = {}, {}, [], [], []
        self.before = lambda method, path, body: None
        self.status, self.host = {}, "127.0.0.1"  # proxyStatus by proxy
        self.count = 0
        self.server = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_one(self):
                outer.handle(self)

            do_GET = do_POST = do_DELETE = handle_one

            def log_message(self, *_):
                pass

        class Threading(http.server.ThreadingHTTPServer):
            daemon_threads, request_queue_size, block_on_close = True, 128, False

            def handle_error(self, *_):
                pass

        self.server = Threading(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = "http://127.0.0.1:%d" % self.server.server_port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def handle(self, h):
        length = int(h.headers.get("Content-Length") or 0)
        body = json.loads(h.rfile.read(length)) if length else {}
        entry = {"method": h.command, "path": h.path, "body": body, "key": h.headers.get("Idempotency-Key"), "at": time.monotonic()}
        self.requests.append(entry)
        try:
            gone = lambda: bool(select.select([h.connection], [], [], 0)[0])  # noqa: E731  # the client disconnected
            status, headers, out = self.before(h.command, h.path, body) or self.answer(h.command, h.path, body, entry["key"], gone)
        except Discovery.Hangup:
            h.close_connection = True
            return
        text = out if isinstance(out, bytes) else json.dumps(out).encode()
        h.send_response(status)
        for name, value in headers.items():
            h.send_header(name, value)
        h.send_header("Content-Length", str(len(text)))
        h.end_headers()
        with contextlib.suppress(OSError):
            h.wfile.write(text)

    def answer(self, method, path, body, key, gone):
        parts = path.split("/")[3:]
        if method == "POST" and not parts:
            return self.acquire(body, key, gone)
        with self.lock:
            if method == "DELETE":
                self.released.append(parts[0])
                self.leases.pop(parts[0], None)
                self.lock.notify_all()
                return 204, {}, b""
            lease = self.leases.get(parts[0])
            if lease is None:
                return 404, {}, {"error": "unknown_lease", "message": "the lease is unknown"}
            if parts[1:] == ["report"]:
                self.reports.append((lease["proxy"]["name"], body["result"], body.get("target", ""), body.get("retryAfterSeconds")))
                self.rest(lease, body)
                return 204, {}, b""
            lease = {**lease, **self.times(lease["ttlSeconds"]), "proxyStatus": self.status.get(lease["proxy"]["name"], {"verdict": "Healthy", "usable": True})}
            del lease["proxyURL"]
            return 200, {}, lease

    def rest(self, lease, body):
        target = body.get("target") or lease["target"]
        if body["result"] in ("banned", "rate_limited", "captcha"):
            self.rests[lease["proxy"]["name"], target] = time.monotonic() + 600
        if body["result"] == "target_unreachable":
            self.rests[lease["proxy"]["name"], target] = time.monotonic() + 30
        if body["result"] in ("connect_error", "proxy_timeout"):
            self.rests[lease["proxy"]["name"], "*"] = time.monotonic() + 30

    def acquire(self, body, key, gone):
        end = time.monotonic() + body.get("wait", 0)
        with self.lock:
            while True:
                if gone():
                    raise Discovery.Hangup
                for lease in self.leases.values():
                    if lease["key"] == key:
                        return 201, {}, lease
                name = self.choose(body)
                if name is not None:
                    return 201, {}, self.grant(name, body, key)
                left = end - time.monotonic()
                if left <= 0 or not self.lock.wait(min(left, 0.05)) and time.monotonic() >= end:
                    return 409, {"Retry-After": "600"}, {"error": "no_match", "message": "all rest", "considered": len(self.proxies)}

    def choose(self, body):
        now, free = time.monotonic(), []
        for name in self.proxies:
            active = sum(1 for lease in self.leases.values() if lease["proxy"]["name"] == name)
            rests = any(self.rests.get((name, t), 0) > now for t in (body.get("target", ""), "*"))
            if not rests and active < self.slots and "crawl/" + name not in body.get("exclude", ()):
                free.append((active, name))
        return min(free)[1] if free else None

    def times(self, ttl):
        expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=ttl + 1)
        return {"expiresAt": expires.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "ttlSeconds": ttl}

    def grant(self, name, body, key):
        self.count += 1
        port = self.proxies[name]
        login = self.login + "@" if self.login else ""
        lease = {
            "key": key, "leaseID": "L%d" % self.count, "proxy": {"name": name, "namespace": "crawl", "host": "127.0.0.1", "port": port},
            "proxyURL": "%s://%s%s:%d" % (self.scheme, login, self.host, port), "target": body.get("target", ""), "fencingToken": self.count,
            "scheme": self.scheme, "host": "127.0.0.1", "port": port, **self.times(body["ttlSeconds"]),
        }  # fmt: skip
        self.leases[lease["leaseID"]] = lease
        return lease

    def calls(self, method, ending):
        return [r for r in self.requests if r["method"] == method and r["path"].endswith(ending)]
