"""Tests of proxylease against a real discovery process and real proxies, which the tests of cmd/discovery start: they
set DISCOVERY_URL and DISCOVERY_TOKEN, and TARGET and TARGET_CA of a site that can be reached through the proxies alone.
There are two proxies with room for one lease each."""

import http.server
import json
import os
import socket
import ssl
import threading
import time
import unittest
import urllib.error
import urllib.request
from unittest import mock

import proxylease

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
        return self.client._call("GET", "/v1/leases/" + lease.id)[0]["expiresAt"]

    def test_it_is_renewed_until_closed(self):
        with self.client.lease(ttl=6) as lease:
            seen = {self.expires_at(lease)}
            while len(seen) < 3:  # as granted, and renewed twice; an expired lease is unknown
                time.sleep(0.1)
                seen.add(self.expires_at(lease))
            self.assertIsNone(lease.error)
            self.assertEqual(1, self.active())
        self.assertEqual(0, self.active())

    def test_loss_is_told_and_connections_are_closed(self):
        told = []
        lost = threading.Event()

        def on_lost(lease, error):
            told.append((lease, error))
            lost.set()

        class Session:
            closed = False

            def close(self):
                self.closed = True

        with self.client.lease(ttl=6, on_lost=on_lost) as lease:
            session = lease.closing(Session())
            answer = through(lease, "/hang")
            self.client._call("DELETE", "/v1/leases/" + lease.id)  # as an operator would
            self.assertTrue(lost.wait(20))
            self.assertRaises(Exception, lambda: answer.read() or self.fail("read on"))
            self.assertTrue(session.closed)
            self.assertRaises(proxylease.Lost, through, lease, "/")
        self.assertEqual([lease], [told_lease for told_lease, _ in told])
        self.assertIsInstance(told[0][1], proxylease.Lost)
        self.assertEqual(404, told[0][1].__cause__.status)

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

    def test_what_is_wrong_is_said_at_once(self):
        with self.assertRaises(proxylease.APIError) as caught:
            self.client.lease(ttl=10 * HOUR)
        self.assertEqual((400, "invalid_ttl"), (caught.exception.status, caught.exception.code))
        with self.assertRaises(proxylease.APIError) as caught:
            proxylease.Client(URL, "CANARY-not-a-token").lease()
        self.assertEqual(401, caught.exception.status)
        self.assertNotIn("CANARY", str(caught.exception))


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers requests for a lease from a script of the test."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((time.monotonic(), self.headers["Idempotency-Key"]))
        status, headers, body = self.server.script.pop(0)
        if status == 0:  # hang up
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_DELETE(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


GRANT = {
    "leaseID": "ID", "proxy": {"name": "a", "namespace": "crawl"}, "proxyURL": "http://u:CANARY@127.0.0.1:1", "target": "",
    "ttlSeconds": 300, "expiresAt": "2026-11-29T20:41:15.321Z", "fencingToken": 1,
}


class AgainstAScript(unittest.TestCase):
    def lease(self, *script, patience=30.0):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
        server.script, server.seen = list(script), []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            client = proxylease.Client("http://127.0.0.1:%d" % server.server_port, timeout=5)
            with client.lease(patience=patience):
                return server.seen
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def test_retry_after_is_honoured(self):
        seen = self.lease((429, {"Retry-After": "1"}, {}), (503, {"Retry-After": "1"}, {}), (201, {}, GRANT))
        self.assertEqual(3, len(seen))
        for (before, _), (after, _) in zip(seen, seen[1:]):
            self.assertGreaterEqual(after - before, 1)

    def test_a_lost_answer_is_asked_for_again_under_the_same_key(self):
        seen = self.lease((0, {}, {}), (500, {}, {}), (201, {}, GRANT))
        self.assertEqual(3, len(seen))
        self.assertEqual(1, len({key for _, key in seen}))
        self.assertTrue(seen[0][1])

    def test_patience_has_an_end(self):
        with self.assertRaises(proxylease.NoProxy):
            self.lease((409, {"Retry-After": "60"}, {"error": "no_match", "considered": 1}), patience=5)
        with self.assertRaises(proxylease.NoProxy):
            self.lease((409, {}, {"error": "no_match", "considered": 0}), patience=5)


class Answers(unittest.TestCase):
    """An intermediary may answer instead of discovery."""

    GRANT = {
        "leaseID": "ID", "proxy": {"name": "a", "namespace": "crawl"}, "proxyURL": "http://127.0.0.1:1", "target": "",
        "fencingToken": 7, "ttlSeconds": 9, "expiresAt": "2026-01-01T00:00:09Z",
    }

    def client(self, *renewals):
        client = proxylease.Client("http://discovery.invalid")
        script = list(renewals)
        client.renewed = 0  # after the end of the script

        def call(method, path, *_):
            if path.endswith("/renew"):
                if script:
                    return proxylease._object(script.pop(0)), {}
                client.renewed += 1
            return dict(self.GRANT), {}

        client._call = call
        client.left = script
        return client

    @staticmethod
    def await_renewal(client, lease):
        """Waits for all scripted renewals of the lease, and then for a successful one."""
        deadline = time.monotonic() + 30
        while not client.renewed and lease.error is None and time.monotonic() < deadline:
            time.sleep(0.01)

    def test_only_a_renewal_renews(self):
        client = self.client(b"<html>", b"[]", b"", b"{}", b'{"leaseID": "OTHER"}', b'{"leaseID": "ID"}', b'{"leaseID": "ID", "expiresAt": 7}')
        with mock.patch.object(proxylease, "_pause", lambda *_: 0.01), client.lease() as lease:
            self.await_renewal(client, lease)
            self.assertEqual([], client.left)
            self.assertGreater(client.renewed, 0)
            self.assertIsNone(lease.error)
            self.assertTrue(lease._thread.is_alive())

    def test_it_is_renewed_at_its_last_moment(self):
        for pause, left, want in ((1, 5, 1), (5, 5, 2.5), (60, 4, 2), (60, 0.1, 60)):
            self.assertEqual(want, proxylease._in_time(pause, left))
        client = self.client(b"{}")
        with mock.patch.object(proxylease, "_pause", lambda *_: 60.0), client.lease() as lease:
            self.await_renewal(client, lease)
            self.assertGreater(client.renewed, 0)
            self.assertIsNone(lease.error)

    def test_a_grant_that_is_none(self):
        client = proxylease.Client("http://discovery.invalid")
        for grant in ({}, {"leaseID": "ID"}, {k: v for k, v in self.GRANT.items() if k != "proxyURL"}):
            client._call = lambda *_, grant=grant: (grant, {})
            with self.assertRaises(proxylease.BadAnswer):
                client.lease(patience=0)

    def test_a_session_that_does_not_close_holds_up_nothing(self):
        class Stubborn:
            def close(self):
                raise ValueError("no")

        closed = threading.Event()

        class Session:
            def close(self):
                closed.set()

        with self.client().lease() as lease:
            lease.closing(Stubborn())
            lease.closing(Session())
        self.assertTrue(closed.is_set())


class Unreachable(unittest.TestCase):
    def test_the_error_says_where_and_no_password(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # bound without listening, so that no other process can listen
            port = closed.getsockname()[1]
            client = proxylease.Client(f"http://me:hunter2@127.0.0.1:{port}", "token")
            with self.assertRaises(urllib.error.URLError) as caught:
                client.lease(patience=0)
        self.assertIn(f"discovery at 127.0.0.1:{port}", str(caught.exception))
        self.assertNotIn("hunter2", str(caught.exception))

    def test_what_is_no_url_is_refused(self):
        for url in (None, "", "discovery:8090"):
            with self.assertRaisesRegex(ValueError, "want http://host:port"):
                proxylease.Client(url, "token")


class Judging(unittest.TestCase):
    def test_judge(self):
        for status, result in ((200, "ok"), (302, "ok"), (403, "banned"), (404, None), (429, "rate_limited"), (451, "banned"), (500, None)):
            self.assertEqual(result, proxylease.judge(status=status))
        for error, result in (
            (ConnectionRefusedError(), "connect_error"), (urllib.error.URLError(TimeoutError()), "target_timeout"),
            (OSError("Tunnel connection failed: 502 Bad Gateway"), "connect_error"), (ValueError(), None),
        ):
            self.assertEqual(result, proxylease.judge(error=error))


if __name__ == "__main__":
    unittest.main()
