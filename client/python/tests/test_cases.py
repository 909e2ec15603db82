"""Holds judge to client/cases.json, with the errors that real libraries raise on real connections."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import socket
import ssl
import unittest
import warnings

import proxylease
from proxylease import _want, _urllib, _cut, _lease, _keeper

from . import harness

with open(os.path.join(harness.HERE, "../../cases.json"), encoding="utf-8") as file:
    CASES = json.load(file)["cases"]

SHORT, LONG = 1.5, 15.0  # seconds: of cases that end with a timeout, and of the others


def lease_on(url):
    grant = {"leaseID": "ID", "proxy": {"name": "a", "namespace": "crawl"}, "proxyURL": url, "target": "", "fencingToken": 1, "ttlSeconds": 60}
    return _lease.BaseLease(_keeper.Held(_want.Grant(grant), 1e12))


def by_urllib(proxy, url, timeout):
    opener = _urllib.opener(lease_on(proxy), _cut.Connections(), harness.Certificates.client())
    with contextlib.closing(opener.open(url, None, timeout)) as answer:
        return answer.status, answer.headers, answer.read()


def by_requests(proxy, url, timeout):
    import requests

    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(url, proxies={"http": proxy, "https": proxy}, timeout=timeout, verify=harness.Certificates.file())
        return answer.status_code, answer.headers, answer.content


def by_requests_raising(proxy, url, timeout):
    import requests

    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(url, proxies={"http": proxy, "https": proxy}, timeout=timeout, verify=harness.Certificates.file())
        answer.raise_for_status()
        return answer.status_code, answer.headers, answer.content


def by_urllib3(proxy, url, timeout):
    import urllib3

    with urllib3.ProxyManager(proxy, ca_certs=harness.Certificates.file(), retries=False, timeout=timeout) as manager:
        answer = manager.request("GET", url)
        return answer.status, answer.headers, answer.data


def by_httpx(proxy, url, timeout):
    import httpx

    with httpx.Client(proxies=proxy, verify=harness.Certificates.client(), timeout=timeout, trust_env=False) as client:
        answer = client.get(url)
        return answer.status_code, answer.headers, answer.content


def by_httpx_async(proxy, url, timeout):
    import httpx

    async def get():
        async with httpx.AsyncClient(proxies=proxy, verify=harness.Certificates.client(), timeout=timeout, trust_env=False) as client:
            answer = await client.get(url)
            return answer.status_code, answer.headers, answer.content

    return asyncio.run(get())


def by_aiohttp(proxy, url, timeout, **limits):
    import aiohttp

    async def get():
        limit = aiohttp.ClientTimeout(**(limits or {"total": timeout}))
        async with aiohttp.ClientSession(timeout=limit) as session:
            async with session.get(url, proxy=proxy, ssl=harness.Certificates.client()) as answer:
                return answer.status, answer.headers, await answer.read()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return asyncio.run(get())


def by_aiohttp_sockets(proxy, url, timeout):
    return by_aiohttp(proxy, url, timeout, total=2 * timeout, sock_connect=timeout, sock_read=timeout)


CRAWLERS = {
    "urllib": by_urllib, "requests": by_requests, "requests, raise_for_status": by_requests_raising, "urllib3": by_urllib3,
    "httpx": by_httpx, "httpx, async": by_httpx_async, "aiohttp": by_aiohttp, "aiohttp, socket timeouts": by_aiohttp_sockets,
}  # fmt: skip
# aiohttp uses one TLS context for proxy and target, and has no limit of its own for the response to CONNECT.
SPEAKS_TLS_WITH_PROXIES = {"requests", "requests, raise_for_status", "urllib3", "httpx", "httpx, async"}


@contextlib.contextmanager
def full_backlog():
    """A port whose connections are not accepted."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            conn = stack.enter_context(socket.socket())
            conn.setblocking(False)
            conn.connect_ex(listener.getsockname())
        yield "http://127.0.0.1:%d" % listener.getsockname()[1]


@contextlib.contextmanager
def refused():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound without listening, so that no other process can listen
        yield "http://127.0.0.1:%d" % closed.getsockname()[1]


def close(conn):
    harness.head(conn)


def untrusted(conn):
    with contextlib.suppress(ssl.SSLError):
        OTHER.server().wrap_socket(conn, server_side=True)


class OTHER(harness.Certificates):
    """A certificate that nobody trusts."""

    _folder = _server = None


def answers(status, after=None):
    headers = "Retry-After: %d\r\n" % after if after else ""
    return lambda *_: harness.response(status, b"" if status == 304 else b"text", headers)


def servers(case):
    """The proxies that make the case happen, and the URL to get."""
    at, what = case["at"], case["is"]
    page = "https://%s/" % harness.SITE
    garbage = lambda conn: (harness.head(conn), conn.sendall(b"what is this\r\n\r\n"))  # noqa: E731
    if at == "connect":
        ways = {
            "closed": [harness.proxy(close, connect=lambda conn: None)],
            "malformed": [garbage],
            "timeout": [harness.freeze],
        }  # fmt: skip
        line = b"HTTP/1.1 %s Reason\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % str(what).encode()
        return ways.get(what) or [harness.proxy(close, connect=line)], page
    if at == "tunnel":
        silent = harness.site(lambda *_: None)
        ways = {
            "untrusted": [harness.proxy(untrusted)],
            "closed": [harness.proxy(lambda conn: None), harness.proxy(lambda conn: conn.recv(1)), harness.proxy(harness.site(lambda *_: b""))],
            "timeout": [harness.proxy(harness.freeze), harness.proxy(silent)],
        }  # fmt: skip
        return ways[what], page
    if what == 407:
        if case["via"] == "plain":
            return [harness.plain_site(answers(407))], "http://%s/" % harness.SITE
    return [harness.proxy(harness.site(answers(what, case.get("retryAfterSeconds"))))], page


@contextlib.contextmanager
def proxies_of(case):
    """URLs of proxies that make the case happen, each in another way."""
    if case["at"] == "dial":
        if case["is"] in ("refused", "timeout"):
            with refused() if case["is"] == "refused" else full_backlog() as url:
                yield [url], "https://%s/" % harness.SITE
        elif case["is"] == "untrusted":
            server = harness.Server(untrusted)
            yield ["https://127.0.0.1:%d" % server.port], "https://%s/" % harness.SITE
            server.close()
        else:
            yield [{"unresolved": "http://proxy.invalid:8080", "unreachable": "http://255.255.255.255:8080"}[case["is"]]], "https://%s/" % harness.SITE
        return
    ways, page = servers(case)
    running = [harness.Server(way) for way in ways]
    try:
        yield ["http://127.0.0.1:%d" % server.port for server in running], page
    finally:
        for server in running:
            server.close()


def verdict_of(crawl, proxy, url, timeout):
    try:
        status, headers, _ = crawl(proxy, url, timeout)
    except Exception as error:  # pylint: disable=broad-except  # the client concludes from any
        return proxylease.judge(error=error), error
    return proxylease.judge(status, headers, url=url), status


INSTALLED = {}


class Cases(unittest.TestCase):
    def check(self, case, verdict, cause=None):
        want = (case["report"], case["target"] == "request", case["changeProxy"], case["retry"], case.get("retryAfterSeconds"))
        self.assertEqual(want, (verdict.report, verdict.about_target, verdict.change_proxy, verdict.retry, verdict.retry_after), repr(cause))

    def crawl(self, name, crawler):
        ran = 0
        for case in CASES:
            if case["is"] in ("unknown", "lease_ended", "timeout") or case["name"] == "the proxy's own certificate is not trusted" and name not in SPEAKS_TLS_WITH_PROXIES:
                continue  # below, and in test_cut.py
            with proxies_of(case) as (proxies, url):
                for proxy in proxies:
                    with self.subTest(case=case["name"], by=name):
                        self.check(case, *verdict_of(crawler, proxy, url, LONG))
                        ran += 1
        self.assertGreater(ran, 22)

    def test_timeouts(self):
        with concurrent.futures.ThreadPoolExecutor(64) as pool, contextlib.ExitStack() as stack:
            running = []
            for case in (c for c in CASES if c["is"] == "timeout"):
                proxies, url = stack.enter_context(proxies_of(case))
                for proxy, (name, crawler) in itertools.product(proxies, INSTALLED.items()):
                    running.append((case, name, pool.submit(verdict_of, crawler, proxy, url, SHORT)))
            for case, name, future in running:
                with self.subTest(case=case["name"], by=name):
                    self.check(case, *future.result())

    def test_an_exception_that_is_not_known(self):
        class Renamed(Exception):
            pass

        class RenamedRefusal(http.client.HTTPException):
            pass

        case = next(c for c in CASES if c["is"] == "unknown")
        for error in (Renamed("?"), RenamedRefusal("?"), OSError(5, "Input/output error")):
            self.check(case, proxylease.judge(error=error))

    def test_the_end_of_the_lease(self):
        case = next(c for c in CASES if c["is"] == "lease_ended")
        for ended in (proxylease.Lost("gone"), proxylease.Released("closed")):
            wrapped = OSError("x")
            wrapped.__cause__ = ended
            for error in (ended, wrapped):
                self.check(case, proxylease.judge(error=error))

    def test_mistakes_of_the_caller_are_no_failure_of_the_proxy(self):
        for error in (ValueError("x"), KeyError("x"), RuntimeError("Session is closed"), http.client.InvalidURL("x"), asyncio.CancelledError(), KeyboardInterrupt()):
            self.assertEqual(proxylease.Verdict(), proxylease.judge(error=error))

    def test_what_the_site_answered_is_not_held_against_the_proxy(self):
        """urllib3 retries statuses, and follows redirects, and then raises an exception of its own."""
        try:
            import requests
            import urllib3
        except ImportError:
            self.skipTest("requests is not installed: apt-get install python3-requests")

        def with_retries(url, proxy, retry):
            with requests.Session() as session:
                session.trust_env = False
                session.mount("https://", requests.adapters.HTTPAdapter(max_retries=retry))
                session.get(url, proxies={"https": proxy}, verify=harness.Certificates.file())

        def with_urllib3(url, proxy, retry):
            with urllib3.ProxyManager(proxy, ca_certs=harness.Certificates.file(), retries=retry) as manager:
                manager.request("GET", url)

        moved = lambda path, _: harness.response(302, b"", "Location: /again\r\n")  # noqa: E731
        ways = {
            None: (lambda *_: harness.response(503), urllib3.Retry(1, status_forcelist=[503])),
            "banned": (lambda *_: harness.response(403), urllib3.Retry(1, status_forcelist=[403])),
            "a redirect loop": (moved, urllib3.Retry(2)),
        }
        for want, (answer, retry) in ways.items():
            server = harness.Server(harness.proxy(harness.site(answer)))
            self.addCleanup(server.close)
            for crawl in [with_urllib3] if want == "a redirect loop" else [with_retries, with_urllib3]:
                with self.subTest(want=want, by=crawl.__name__), self.assertRaises((requests.RequestException, urllib3.exceptions.HTTPError)) as caught:
                    crawl("https://%s/" % harness.SITE, "http://127.0.0.1:%d" % server.port, retry)
                verdict = proxylease.judge(error=caught.exception)
                self.assertEqual((want if want == "banned" else None, want == "banned"), (verdict.report, verdict.retry), repr(caught.exception))

    def test_a_failure_after_a_redirect_concerns_the_site_it_leads_to(self):
        target = "http://shop.example/"
        calls = {"urllib": by_urllib, "urllib3": self.following_urllib3, "requests": by_requests, "httpx": self.following_httpx, "aiohttp": by_aiohttp}
        moved = lambda *_: harness.response(302, b"", "Location: https://dead.example/\r\nConnection: close\r\n")  # noqa: E731
        server = harness.Server(harness.proxy(harness.plain_site(moved), connect=b"HTTP/1.1 503 Reason\r\nContent-Length: 0\r\n\r\n"))
        self.addCleanup(server.close)
        for name, crawl in calls.items():
            if name not in INSTALLED:
                continue
            with self.subTest(by=name), self.assertRaises(Exception) as caught:
                crawl("http://127.0.0.1:%d" % server.port, target, LONG)
            verdict = proxylease.judge(error=caught.exception, url=target)
            self.assertEqual(("target_unreachable", "dead.example"), (verdict.report, verdict.target), name + repr(caught.exception))
        self.assertEqual("b.example", proxylease.judge(403, url="https://b.example/x").target)
        self.assertEqual("", proxylease.judge(error=ConnectionRefusedError(), url=target).target, "it concerns the proxy alone")

    @staticmethod
    def following_urllib3(proxy, url, timeout):
        import urllib3

        with urllib3.ProxyManager(proxy, ca_certs=harness.Certificates.file(), retries=urllib3.Retry(total=None, connect=0, other=0, redirect=3), timeout=timeout) as manager:
            manager.request("GET", url)

    @staticmethod
    def following_httpx(proxy, url, timeout):
        import httpx

        with httpx.Client(proxies=proxy, timeout=timeout, trust_env=False, follow_redirects=True) as client:
            client.get(url)

    def test_every_case_is_known(self):
        for case in CASES:
            self.assertIn(case["at"], ("dial", "connect", "tunnel", "response"))


def _add(name, crawler, module):
    def test(self):
        __import__(module)
        self.crawl(name, crawler)

    try:
        __import__(module)
        INSTALLED[name] = crawler
    except ImportError:
        test = unittest.skip(module + " is not installed: apt-get install python3-" + module)(test)
    setattr(Cases, "test_" + "".join(c if c.isalnum() else "_" for c in name), test)


for _name, _crawler in CRAWLERS.items():
    _add(_name, _crawler, "urllib.request" if _name == "urllib" else _name.split(",")[0])

if __name__ == "__main__":
    unittest.main()
