"""When a lease ends, connections in use are cut, whichever library holds them; their errors are no verdict on the proxy."""

import asyncio
import json
import os
import threading
import unittest
import urllib.request

import proxylease
from proxylease import aio

from . import harness

with open(os.path.join(harness.HERE, "../../cases.json"), encoding="utf-8") as file:
    CASE = next(c for c in json.load(file)["cases"] if c["is"] == "lease_ended")

LONG = 60  # seconds, after which nothing of this is right


def by_urllib(lease, url):
    return lease.open(url, timeout=LONG, context=harness.Certificates.client()).read()


def by_requests(lease, url):
    import requests

    session = lease.closing(requests.Session())
    session.trust_env = False
    return session.get(url, proxies=lease.proxies, timeout=LONG, verify=harness.Certificates.file()).content


def by_urllib3(lease, url):
    import urllib3

    manager = lease.closing(Closable(urllib3.ProxyManager(lease.proxy_url, ca_certs=harness.Certificates.file(), retries=False, timeout=LONG)))
    return manager.request("GET", url).data


def Closable(manager):
    manager.close = manager.clear
    return manager


def by_httpx(lease, url):
    import httpx

    client = lease.closing(httpx.Client(proxies=lease.proxy_url, verify=harness.Certificates.client(), timeout=LONG, trust_env=False))
    return client.get(url).content


async def by_httpx_async(lease, url):
    import httpx

    client = lease.closing(httpx.AsyncClient(proxies=lease.proxy_url, verify=harness.Certificates.client(), timeout=LONG, trust_env=False))
    return (await client.get(url)).content


async def by_aiohttp(lease, url):
    import aiohttp

    session = lease.closing(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(LONG)))
    async with session.get(url, proxy=lease.proxy_url, ssl=harness.Certificates.client()) as answer:
        return await answer.read()


class Cut(unittest.TestCase):
    def setUp(self):
        self.frozen = threading.Semaphore(0)

        def silent(*_):
            self.frozen.release()

        def half(conn):
            with harness.Certificates.server().wrap_socket(conn, server_side=True) as tls:
                harness.head(tls)
                tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nrea")
                self.frozen.release()
                harness.freeze(tls)

        def handshake(conn):
            self.frozen.release()
            harness.freeze(conn)

        def connect(conn):
            harness.head(conn)
            self.frozen.release()
            harness.freeze(conn)

        self.ways = {"CONNECT": connect, "TLS": harness.proxy(handshake), "response": harness.proxy(harness.site(silent)), "body": harness.proxy(half)}

    def each_way(self, hold):
        for stage, way in self.ways.items():
            with self.subTest(stage):
                server = harness.Server(way)
                d = harness.Discovery({"p0": server.port})
                try:
                    error = hold(d, "https://%s/" % harness.SITE)
                    self.assertIsNotNone(error, "it was cut")
                    verdict = proxylease.judge(error=error)
                    if stage == "response":
                        self.assertEqual((CASE["report"], CASE["changeProxy"], CASE["retry"]), (verdict.report, verdict.change_proxy, verdict.retry), repr(error))
                    harness.until(lambda server=server: not server.open)
                    self.assertEqual({}, d.leases)
                finally:
                    server.close()
                    d.__exit__()

    def check(self, get):
        def hold(d, url):
            caught = []

            def run():
                try:
                    get(lease, url)
                except Exception as error:  # pylint: disable=broad-except
                    caught.append(error)

            with proxylease.Client(d.url) as client, client.lease() as lease:
                thread = threading.Thread(target=run, daemon=True)
                thread.start()
                self.assertTrue(self.frozen.acquire(timeout=20))
            thread.join(20)
            return caught[0] if caught else None

        self.each_way(hold)

    def check_async(self, get):
        # An attempt to connect is not cut before the library's own timeout: asyncio has no means for that.
        self.ways = {stage: self.ways[stage] for stage in ("response", "body")}
        async def main(d, url):
            async with aio.Client(d.url) as client:
                async with client.lease() as lease:
                    task = asyncio.ensure_future(get(lease, url))
                    await asyncio.get_running_loop().run_in_executor(None, self.frozen.acquire)
                done, _ = await asyncio.wait({task}, timeout=20)
                return task.exception() if done else None

        self.each_way(lambda d, url: asyncio.run(main(d, url)))

    def test_urllib(self):
        self.check(by_urllib)

    def test_a_lease_that_has_ended(self):
        d = harness.Discovery()
        self.addCleanup(d.__exit__)

        class Session:
            closed = False

            def close(self):
                self.closed = True
                raise ValueError("no")

        first, second, late = Session(), Session(), Session()
        with proxylease.Client(d.url) as client, client.lease() as lease:
            lease.closing(first)
            lease.closing(second)
        harness.until(lambda: first.closed and second.closed)
        with self.assertRaises(proxylease.Released):
            lease.closing(late)
        self.assertTrue(late.closed)
        with self.assertRaises(proxylease.Released):
            lease.open(urllib.request.Request("http://site.example/"))


for _name, _module, _get, _check in (
    ("requests", "requests", by_requests, Cut.check), ("urllib3", "urllib3", by_urllib3, Cut.check), ("httpx", "httpx", by_httpx, Cut.check),
    ("httpx_async", "httpx", by_httpx_async, Cut.check_async), ("aiohttp", "aiohttp", by_aiohttp, Cut.check_async),
):  # fmt: skip
    try:
        __import__(_module)
        setattr(Cut, "test_" + _name, lambda self, check=_check, get=_get: check(self, get))
    except ImportError:
        setattr(Cut, "test_" + _name, unittest.skip(_module + " is not installed: apt-get install python3-" + _module)(lambda self: None))

if __name__ == "__main__":
    unittest.main()
