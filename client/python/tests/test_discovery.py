"""Tests of proxylease against a real discovery process and real proxies, which the tests of cmd/discovery start: they
set DISCOVERY_URL and DISCOVERY_TOKEN, and TARGET and TARGET_CA of a site that can be reached through the proxies alone.
There are two proxies with room for one lease each."""

import asyncio
import json
import os
import ssl
import threading
import time
import unittest
import urllib.request

import proxylease
from proxylease import aio

URL = os.environ.get("DISCOVERY_URL", "")
TOKEN = os.environ.get("DISCOVERY_TOKEN", "")
TARGET = os.environ.get("TARGET", "")
HOUR = 3600


def through(lease, path):
    return lease.open(TARGET + path, timeout=20, context=ssl.create_default_context(cafile=os.environ["TARGET_CA"]))


@unittest.skipUnless(URL, "DISCOVERY_URL is not set: go test ./cmd/discovery -run PythonClient runs these")
class AgainstDiscovery(unittest.TestCase):
    def setUp(self):
        self.client = proxylease.Client(URL, TOKEN)
        self.addCleanup(self.client.close)

    def active(self):
        request = urllib.request.Request(URL + "/v1/proxies", headers={"Authorization": "Bearer " + TOKEN})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return sum(p["activeLeases"] for p in json.load(answer)["proxies"])

    def test_a_lease_is_a_scope(self):
        with self.client.lease(target="scope.example") as lease:
            with through(lease, "/") as answer:
                self.assertEqual(b"reached", answer.read())
            self.assertEqual(1, self.active())
            self.assertEqual(lease.proxy_url, lease.proxies["https"])
            self.assertTrue(lease.password.startswith("CANARY"))
            self.assertNotIn("CANARY", repr(lease))
        self.assertEqual(0, self.active())
        self.assertIsInstance(lease.error, proxylease.Released)
        with self.assertRaises(proxylease.Released):
            through(lease, "/")
        lease.close()

    def test_two_leases_have_two_proxies_and_there_is_no_third(self):
        with self.client.lease(target="two.example") as a, self.client.lease(target="two.example") as b:
            self.assertNotEqual(a.proxy["name"], b.proxy["name"])
            with self.assertRaises(proxylease.NoProxy) as caught:
                self.client.lease(target="two.example", patience=0)
            self.assertEqual(2, caught.exception.counts["atCapacity"])
            self.assertGreater(caught.exception.retry_after, 0)

    def test_it_waits_for_a_proxy(self):
        a, b = self.client.lease(), self.client.lease()
        threading.Timer(0.3, a.close).start()
        with self.client.lease(patience=20) as lease:
            self.assertEqual(a.proxy["name"], lease.proxy["name"])
        b.close()

    def expires_at(self, lease):
        return self.call("GET", lease)["expiresAt"]

    def call(self, method, lease):
        return self.client.submit(self.client.keeper.api.call(method, "/v1/leases/" + lease.id)).result()[0]

    def test_it_is_renewed_until_closed(self):
        with self.client.lease(ttl=6) as lease:
            seen = {self.expires_at(lease)}
            while len(seen) < 3:  # as granted, and renewed twice; an expired lease is unknown
                time.sleep(0.1)
                seen.add(self.expires_at(lease))
            self.assertIsNone(lease.error)
            self.assertEqual(1, self.active())
        self.assertEqual(0, self.active())

    def test_a_loss_calls_back_and_cuts_connections(self):
        calls = []
        lost = threading.Event()

        def on_lost(lease, error):
            calls.append((lease, error))
            lost.set()

        class Session:
            closed = False

            def close(self):
                self.closed = True

        with self.client.lease(ttl=6, on_lost=on_lost) as lease:
            session = lease.closing(Session())
            answer = through(lease, "/hang")
            self.call("DELETE", lease)  # as an operator would
            self.assertTrue(lost.wait(20))
            self.assertRaises(Exception, lambda: answer.read() or self.fail("read on"))
            self.assertTrue(session.closed)
            self.assertRaises(proxylease.Lost, through, lease, "/")
        self.assertEqual([lease], [lost_lease for lost_lease, _ in calls])
        self.assertIsInstance(calls[0][1], proxylease.Lost)
        self.assertEqual(404, calls[0][1].__cause__.status)

    def test_close_ends_tunnels_in_use(self):
        with self.client.lease() as lease:
            answer = through(lease, "/hang")
        started = time.monotonic()
        self.assertRaises(Exception, lambda: answer.read() or self.fail("read on"))
        self.assertLess(time.monotonic() - started, 10)

    def test_a_report_spares_the_next(self):
        with self.client.lease(target="report.example") as lease:
            first = lease.proxy["name"]
            lease.report("rate_limited")
        for _ in range(2):
            with self.client.lease(target="report.example") as lease:
                self.assertNotEqual(first, lease.proxy["name"])

    def test_asyncio(self):
        async def crawl():
            async with aio.Client(URL, TOKEN) as client, client.lease(target="aio.example") as lease:
                await lease.report("ok")
                return self.active()

        self.assertEqual(1, asyncio.run(crawl()))
        self.assertEqual(0, self.active())

    def test_a_retry_after_is_passed_on(self):
        with self.client.lease(target="limits.example") as lease:
            lease.report(proxylease.judge(429, {"Retry-After": "7"}), target="https://limits.example/")
        with self.assertRaises(proxylease.NoProxy) as caught:
            self.client.lease(target="limits.example", exclude=[self.other(lease)], patience=0)
        self.assertLessEqual(caught.exception.retry_after, 7)

    def other(self, lease):
        """The name of the other proxy."""
        with self.client.lease(exclude=[lease.proxy_name]) as found:
            return found.proxy_name

    def test_a_renewal_has_the_status_of_the_proxy(self):
        with self.client.lease(ttl=3) as lease:
            deadline = time.monotonic() + 20
            while not lease.proxy_status and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual((True, True), (lease.proxy_status["usable"], lease.usable))

    def test_what_matches_nothing_fails_at_once(self):
        start = time.monotonic()
        with self.assertRaises(proxylease.NoProxy):
            self.client.lease(selector={"geo": "nowhere"}, patience=20)
        self.assertLess(time.monotonic() - start, 10)

    def test_errors_that_no_retry_mends(self):
        with self.assertRaises(proxylease.APIError) as caught:
            self.client.lease(ttl=10 * HOUR)
        self.assertEqual((400, "invalid_ttl"), (caught.exception.status, caught.exception.code))
        with self.assertRaises(proxylease.APIError) as caught:
            proxylease.Client(URL, "CANARY-not-a-token").lease()
        self.assertEqual(401, caught.exception.status)
        self.assertNotIn("CANARY", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
