"""Tests of proxylease.Client on a scripted discovery."""

import gc
import io
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import proxylease
from proxylease import _attempts, _keeper, _want

from . import harness
from .harness import Discovery


class Base(unittest.TestCase):
    def setUp(self):
        often = mock.patch.object(_keeper, "RENEWALS_PER_TTL", 300)
        often.start()
        self.addCleanup(often.stop)

    def discovery(self, *args, **kwargs):
        found = Discovery(*args, **kwargs)
        self.addCleanup(found.__exit__)
        return found

    def client(self, discovery, **kwargs):
        client = proxylease.Client(discovery.url, **kwargs)
        self.addCleanup(client.close)
        return client


class Scope(Base):
    def test_a_lease_is_a_scope(self):
        d = self.discovery(login="user:CANARY%3D%3D")
        with self.client(d).lease(target="shop.example", selector={"geo": "eu"}, session="s", ttl=60) as lease:
            self.assertEqual(1, len(d.leases))
            self.assertEqual(("http", "127.0.0.1", 1, "user", "CANARY=="), (lease.scheme, lease.host, lease.port, lease.username, lease.password))
            self.assertEqual("http://127.0.0.1:1", lease.server)
            self.assertNotIn("CANARY", repr(lease) + repr(lease._held.grant))
        self.assertEqual({}, d.leases)
        self.assertIsInstance(lease.error, proxylease.Released)
        lease.close()
        body = d.requests[0]["body"]
        self.assertEqual({"geo": "eu"}, body["selector"])
        self.assertEqual((["http"], 60, "s", "shop.example"), (body["schemes"], body["ttlSeconds"], body["session"], body["target"]))

    def test_an_exception_gives_the_lease_back(self):
        d = self.discovery()
        with self.assertRaises(ZeroDivisionError), self.client(d).lease():
            raise ZeroDivisionError
        self.assertEqual({}, d.leases)

    def test_a_scheme_that_was_not_asked_for_is_refused_and_released(self):
        d = self.discovery(scheme="https")
        with self.assertRaisesRegex(proxylease.UnsupportedProxy, "crawl/p0 has the scheme 'https'"):
            self.client(d).lease()
        self.assertEqual({}, d.leases)
        with self.client(d).lease(schemes=("https",)) as lease, self.assertRaisesRegex(proxylease.UnsupportedProxy, "urllib cannot speak https"):
            lease.open("https://shop.example/")

    def test_closing_the_client_releases_all(self):
        d = self.discovery({"p%d" % n: 1 for n in range(5)})
        client = self.client(d)
        leases = [client.lease() for _ in range(5)]
        client.close()
        client.close()
        self.assertEqual({}, d.leases)
        leases[0].close()
        with self.assertRaises(proxylease.ClientClosed):
            client.lease()

    def test_the_thread_of_a_client_without_leases_ends_with_it(self):
        d = self.discovery()
        with proxylease.Client(d.url).lease():
            self.assertIn("proxylease", [t.name for t in threading.enumerate()])
        gc.collect()
        harness.until(lambda: "proxylease" not in [t.name for t in threading.enumerate()])

    def test_fifty_leases_have_one_thread(self):
        d = self.discovery({"p%d" % n: 1 for n in range(50)})
        before = threading.active_count()
        client = self.client(d)
        leases = [client.lease(ttl=2) for _ in range(50)]
        mine = [t.name for t in threading.enumerate() if t.name.startswith("proxylease")]
        self.assertEqual(["proxylease"], mine, before)
        harness.until(lambda: len({r["path"] for r in d.calls("POST", "/renew")}) == 50)
        self.assertEqual([None] * 50, [lease.error for lease in leases])

    def test_logs_have_no_secrets(self):
        out = io.StringIO()
        handler, log = logging.StreamHandler(out), logging.getLogger("proxylease")
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
        self.addCleanup(log.removeHandler, handler)
        d = self.discovery(login="u:CANARY")
        with self.client(d, token="CANARY").lease() as lease:
            lease.report("banned", target="https://a:CANARY@shop.example/x")
        self.assertIn("leased crawl/p0", out.getvalue())
        self.assertNotIn("CANARY", out.getvalue())


class Acquire(Base):
    def test_a_lost_answer_is_asked_for_again_under_the_same_key(self):
        d, script = self.discovery(), [Discovery.Hangup(), (500, {}, {}), (201, {}, b"<html>")]

        def before(method, path, _):
            if path == "/v1/leases" and script:
                step = script.pop(0)
                if isinstance(step, Exception):
                    raise step
                return step
            return None

        d.before = before
        with self.client(d).lease(patience=30):
            keys = {r["key"] for r in d.calls("POST", "/v1/leases")}
        self.assertEqual((1, 4), (len(keys), len(d.calls("POST", "/v1/leases"))))

    def test_rate_limits_are_waited_for(self):
        d, script = self.discovery(), [(429, {"Retry-After": "1"}, {}), (503, {"Retry-After": "1"}, {})]
        d.before = lambda method, path, _: script.pop(0) if path == "/v1/leases" and script else None
        with self.client(d).lease():
            at = [r["at"] for r in d.calls("POST", "/v1/leases")]
        self.assertTrue(all(b - a >= 1 for a, b in zip(at, at[1:])), at)

    def test_patience_is_the_whole_time(self):
        """A Retry-After of 600 is the latest time: the proxy is free much earlier."""
        d = self.discovery()
        client = self.client(d)
        first = client.lease()
        d.before = lambda method, path, body: (409, {"Retry-After": "600"}, {"error": "no_match"}) if path == "/v1/leases" and len(d.requests) < 4 else None
        threading.Timer(1.0, first.close).start()
        with client.lease(patience=30) as second:
            self.assertNotEqual(first.id, second.id)

    def test_patience_has_an_end(self):
        d = self.discovery()
        client = self.client(d)
        with client.lease():
            for patience in (0, 1.2):
                start = time.monotonic()
                with self.assertRaises(proxylease.NoProxy) as caught:
                    client.lease(patience=patience)
                self.assertGreaterEqual(time.monotonic() - start, patience - 0.1)
                self.assertEqual(1, caught.exception.counts["considered"])

    def test_pauses_of_a_request_for_a_lease(self):
        no_proxy = proxylease.NoProxy(409, {"Retry-After": "600"}, {"error": "no_match"})
        limited = proxylease.APIError(429, {"Retry-After": "7"}, {})
        self.assertLess(_keeper._acquire_pause(no_proxy, 3, early=False), 0.1)
        self.assertGreater(_keeper._acquire_pause(no_proxy, 9, early=True), 2)
        self.assertEqual(7, _keeper._acquire_pause(limited, 0, early=True))

    def test_names_of_headers_are_in_any_case(self):
        for name in ("Retry-After", "retry-after", "RETRY-AFTER"):
            self.assertEqual(7, proxylease.APIError(429, {name: "7"}, {}).retry_after)
            self.assertEqual(7, proxylease.judge(429, {name: "7"}).retry_after)
        d, script = self.discovery(), [(429, {"retry-after": "1"}, {})]
        d.before = lambda method, path, _: script.pop(0) if path == "/v1/leases" and script else None
        with self.client(d).lease():
            at = [r["at"] for r in d.calls("POST", "/v1/leases")]
        self.assertGreaterEqual(at[1] - at[0], 1)

    def test_whatever_ends_a_request_leaves_no_lease(self):
        """The grant is made, and its answer is lost, or is none that the client can use."""
        bad = {"proxyURL": "http://%FF:x@127.0.0.1:1"}, {"ttlSeconds": None}, {"fencingToken": float("inf")}, {"proxy": 7}
        for step in ("hangup", "502", "frozen", *bad):
            d, first = self.discovery(), [step]

            def before(method, path, body, d=d, first=first):
                if path != "/v1/leases" or not first:
                    return None
                step, grant = first.pop(), d.grant("p0", body, d.requests[-1]["key"])
                if step == "hangup":
                    raise Discovery.Hangup
                if step == "frozen":
                    harness.until(lambda: len(d.released) > 0 or len(d.requests) > 1)
                    raise Discovery.Hangup
                return (502, {}, b"") if step == "502" else (201, {}, {**grant, **step})

            d.before = before
            with self.subTest(step=step), self.assertRaises((proxylease.Unreachable, proxylease.BadAnswer, proxylease.APIError)):
                self.client(d, timeout=0.5).lease(patience=0)
            self.assertEqual((1, {}), (d.count, d.leases), step)

    def test_a_login_that_is_not_utf8_is_refused(self):
        d = self.discovery(login="%FFuser:CANARY")
        with self.assertRaisesRegex(proxylease.BadAnswer, "not UTF-8") as caught:
            self.client(d).lease(patience=0)
        self.assertNotIn("CANARY", str(caught.exception))
        self.assertEqual({}, d.leases)

    def test_closing_the_client_ends_a_request_for_a_lease(self):
        for granted in (False, True):
            d, entered, caught = self.discovery(), threading.Event(), []

            def before(method, path, body, d=d, entered=entered, granted=granted):
                if path == "/v1/leases" and not entered.is_set():
                    if granted:
                        d.grant("p0", body, d.requests[-1]["key"])
                    entered.set()
                    harness.until(lambda: d.released or len(d.requests) > 1)
                    raise Discovery.Hangup

            d.before = before
            client = self.client(d)

            def wait(client=client, caught=caught):
                try:
                    client.lease(patience=60)
                except BaseException as error:  # pylint: disable=broad-except
                    caught.append(error)

            waiter = threading.Thread(target=wait)
            waiter.start()
            self.assertTrue(entered.wait(20))
            client.close()
            waiter.join(20)
            self.assertEqual([proxylease.ClientClosed], [type(e) for e in caught], caught)
            self.assertEqual({}, d.leases)

    def test_an_interrupt_right_after_the_grant_leaves_no_lease(self):
        d = self.discovery()
        client = self.client(d)
        call = client._call

        def interrupted(coroutine):
            call(coroutine)
            raise KeyboardInterrupt

        with mock.patch.object(client, "_call", interrupted), self.assertRaises(KeyboardInterrupt):
            client.lease()
        self.assertEqual((1, {}), (d.count, d.leases))

    def test_what_matches_nothing_fails_at_once_unless_asked_to_wait(self):
        d = self.discovery()
        d.before = lambda method, path, body: (409, {}, {"error": "no_match", "considered": 0}) if path == "/v1/leases" and len(d.requests) < 3 else None
        client = self.client(d)
        with self.assertRaises(proxylease.NoProxy):
            client.lease(patience=30)
        with client.lease(patience=30, wait_for_match=True):
            self.assertTrue(d.requests[-1]["body"]["waitForMatch"])

    def test_what_is_no_grant(self):
        whole = {"leaseID": "ID", "proxy": {"name": "a", "namespace": "c"}, "proxyURL": "http://h:1", "target": "", "fencingToken": 7, "ttlSeconds": 9, "expiresAt": "x"}
        d = self.discovery()
        client = self.client(d)
        for field in whole:
            grant = {k: v for k, v in whole.items() if k != field}
            d.before = lambda *_, grant=grant: (201, {}, grant)
            with self.assertRaisesRegex(proxylease.BadAnswer, field):
                client.lease(patience=0)

    def test_unreachable_names_where_and_no_secret(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = "http://127.0.0.1:%d" % closed.getsockname()[1]
            with self.assertRaisesRegex(proxylease.Unreachable, "discovery at 127.0.0.1") as caught:
                proxylease.Client(url, "CANARY").lease(patience=0)
        self.assertIsInstance(caught.exception, OSError)
        self.assertNotIn("CANARY", str(caught.exception))

    def test_urls_of_discovery_that_are_refused(self):
        for url in (None, "", "discovery:8090", "ftp://discovery"):
            with self.assertRaisesRegex(ValueError, "want http://host:port"):
                proxylease.Client(url, "token")
        with self.assertRaisesRegex(ValueError, "contains a username") as caught:
            proxylease.Client("http://me:CANARY@discovery:8090")
        self.assertNotIn("CANARY", str(caught.exception))


class Renewal(Base):
    def test_only_a_renewal_renews(self):
        d = self.discovery()
        other = [(200, {}, text) for text in (b"<html>", b"[]", b"", b"{}", b'{"leaseID": "OTHER"}', b'{"leaseID": "L1"}', b'{"leaseID": "L1", "expiresAt": 7}')]
        d.before = lambda method, path, _: other.pop(0) if path.endswith("/renew") and other else None
        with mock.patch.object(_keeper, "_backoff", lambda _: 0.01), self.client(d).lease(ttl=60) as lease:
            deadline = lease._held.deadline
            harness.until(lambda: lease._held.deadline > deadline)
            self.assertEqual([], other)
            self.assertIsNone(lease.error)

    def test_garbage_does_not_end_the_renewals(self):
        """Answers that a parser fails on in a way of its own."""
        d = self.discovery()
        garbage = [(200, {}, b"[" * 60000), (200, {}, b'{"leaseID": "L1", "expiresAt": "x", "ttlSeconds": 1%s}' % (b"0" * 400)), (200, {"X": "y" * (3 << 20)}, b"{}")]
        d.before = lambda method, path, _: garbage.pop(0) if path.endswith("/renew") and garbage else None
        with mock.patch.object(_keeper, "_backoff", lambda _: 0.01), self.client(d).lease(ttl=60) as lease:
            harness.until(lambda: not garbage and len(d.calls("POST", "/renew")) > 4)
            self.assertIsNone(lease.error)

    def test_an_exception_that_is_not_known_is_retried(self):
        d, fail = self.discovery(), [1, 1]

        def observe(*_):
            if fail:
                raise ZeroDivisionError(fail.pop())

        with mock.patch.object(_keeper, "_backoff", lambda _: 0.01), mock.patch.object(_keeper.Keeper, "_observe", observe), self.client(d).lease(ttl=60):
            harness.until(lambda: len(d.calls("POST", "/renew")) > 3)

    def test_a_long_lease_is_renewed_twice_a_minute(self):
        with mock.patch.object(_keeper, "RENEWALS_PER_TTL", 3):
            self.assertEqual([20, 30, 30], [_keeper.renewal_pause(ttl) for ttl in (60, 90, 3600)])

    def test_it_is_renewed_at_its_last_moment(self):
        for pause, left, want in ((1, 5, 1), (5, 5, 2.5), (60, 4, 2), (60, 0.1, 60)):
            self.assertEqual(want, _keeper._in_time(pause, left))

    def test_a_lease_that_is_gone_is_lost(self):
        d, lost = self.discovery(), []
        with self.client(d).lease(ttl=2, on_lost=lambda lease, error: lost.append((lease, error))) as lease:
            d.leases.clear()
            self.assertTrue(lease.ended.wait(20))
            harness.until(lambda: lost)
        self.assertEqual(lease, lost[0][0])
        self.assertIsInstance(lost[0][1], proxylease.Lost)
        self.assertEqual(404, lost[0][1].__cause__.status)

    def test_a_lease_that_cannot_be_renewed_is_lost_when_it_expires(self):
        d = self.discovery()
        d.before = lambda method, path, _: (503, {"Retry-After": "600"}, {}) if path.endswith("/renew") else None
        with self.client(d).lease(ttl=1) as lease:
            self.assertTrue(lease.ended.wait(20))
            self.assertRegex(str(lease.error), "expired")

    def test_a_callback_may_close_the_lease(self):
        d, done = self.discovery(), threading.Event()
        with self.client(d).lease(ttl=2, on_unusable=lambda lease: (lease.close(), done.set())):
            d.status["p0"] = {"verdict": "Unhealthy", "usable": False}
            self.assertTrue(done.wait(20))
        self.assertEqual({}, d.leases)

    def test_a_renewal_that_finds_the_proxy_unusable(self):
        """The prober has found the leased proxy Unhealthy: the holder is to change to another."""
        d, seen = self.discovery({"p0": 1, "p1": 2}), []
        client = self.client(d)
        with client.lease(ttl=2, on_unusable=seen.append) as lease:
            self.assertTrue(lease.usable)
            d.status["p0"] = {"verdict": "Unhealthy", "reason": "ProbeFailed", "usable": False, "message": "probes fail"}
            harness.until(lambda: seen)
            self.assertEqual(([lease], False, None), (seen, lease.usable, lease.error))
            self.assertEqual("ProbeFailed", lease.proxy_status["reason"])
            renewals = len(d.calls("POST", "/renew"))
            harness.until(lambda: len(d.calls("POST", "/renew")) > renewals + 1)
            self.assertEqual([lease], seen)


class Reports(Base):
    def test_a_verdict_goes_to_the_site_of_the_request(self):
        d = self.discovery()
        with self.client(d).lease(target="first.example") as lease:
            lease.report(proxylease.judge(403), target="https://Second.example:8443/x?y")
            lease.report(proxylease.judge(429, {"Retry-After": "7"}), target="https://second.example/")
            lease.report(proxylease.judge(error=ConnectionRefusedError()), target="https://second.example/")
            lease.report(proxylease.judge(500), target="https://second.example/")
            lease.report("captcha")
        want = [("banned", "second.example", None), ("rate_limited", "second.example", 7), ("connect_error", "", None), ("captcha", "", None)]
        self.assertEqual(want, [r[1:] for r in d.reports])

    def test_retry_after(self):
        for value, want in (("7", 7), ("0", None), ("-1", None), ("soon", None), ("", None), ("999999999999", 86400), (b"7", 7), ("Wed, 21 Oct 2015 07:28:00 GMT", None)):
            self.assertEqual(want, proxylease.judge(429, {"Retry-After": value}).retry_after, value)

    def test_a_ban_keeps_what_the_site_asked_for(self):
        d = self.discovery()
        with self.client(d).lease() as lease:
            lease.report(proxylease.judge(403, {"Retry-After": "7"}, url="https://b.example/x"))
        self.assertEqual([("p0", "banned", "b.example", 7)], d.reports)

    def test_407_is_the_proxys_only_to_a_plain_request(self):
        for url, want in (("http://shop.example/", "connect_error"), ("https://shop.example/", None), ("", None)):
            self.assertEqual(want, proxylease.judge(407, url=url).report, url)

    def test_a_report_is_retried_while_discovery_is_down(self):
        d, script = self.discovery(), [Discovery.Hangup(), (503, {"Retry-After": "1"}, {})]

        def before(method, path, _):
            if path.endswith("/report") and script:
                step = script.pop(0)
                if isinstance(step, Exception):
                    raise step
                return step
            return None

        d.before = before
        with self.client(d).lease() as lease:
            lease.report("banned")
        self.assertEqual([("p0", "banned", "", None)], d.reports)

    def test_a_grant_without_optional_parts(self):
        grant = {"leaseID": "ID", "proxy": {"name": "a", "namespace": "c"}, "proxyURL": "http://[::1]:1", "target": "", "fencingToken": 7, "ttlSeconds": 9}
        self.assertEqual(("::1", "http://[::1]:1", None, None), (lambda g: (g.host, g.server, g.username, g.password))(_want.Grant(grant)))


class Page:
    def __init__(self, status, **headers):
        self.status, self.headers, self.url = status, headers, "https://shop.example/"


class Attempts(Base):
    """The sequence of outcomes by proxy, and what is reported."""

    def attempts(self, outcomes, proxies=4, n=3, **want):
        """Runs attempts whose outcomes are statuses or exceptions; returns the outcome, the proxies, and the reports."""
        d, used, left = self.discovery({"p%d" % i: 1 for i in range(proxies)}), [], list(outcomes)

        def fetch(lease):
            used.append(lease.proxy["name"])
            step = left.pop(0)
            if isinstance(step, BaseException):
                raise step
            return Page(*step) if isinstance(step, tuple) else Page(step)

        with mock.patch.object(_attempts, "ANOTHER", 0.2):
            got = self.run_attempts(d, fetch, n, {"target": "https://first.example/", **want})
        self.assertEqual({}, d.leases)
        return got, used, [report[:3] for report in d.reports]

    def run_attempts(self, d, fetch, n, want):
        try:
            return self.client(d).attempts(fetch, n=n, **want).status
        except Exception as error:  # pylint: disable=broad-except
            return error

    def test_a_page_proves_the_bans_on_the_way(self):
        got, used, reports = self.attempts([403, 403, 200])
        self.assertEqual((200, ["p0", "p1", "p2"]), (got, used))
        self.assertEqual([("p0", "banned", "shop.example"), ("p1", "banned", "shop.example"), ("p2", "ok", "shop.example")], reports)

    def test_a_URL_that_several_proxies_are_refused_for_costs_none(self):
        self.assertEqual((403, ["p0", "p1", "p2"], []), self.attempts([403, 403, 403]))
        self.assertEqual((403, ["p0", "p1"], []), self.attempts([403, 403], proxies=2))

    def test_the_only_proxy_is_banned(self):
        self.assertEqual((403, ["p0"], [("p0", "banned", "shop.example")]), self.attempts([403], proxies=1))
        self.assertEqual((403, ["p0"], [("p0", "banned", "shop.example")]), self.attempts([403], n=1))

    def test_other_failures_are_reported_at_once_and_their_proxies_not_used_again(self):
        closed, slow = ConnectionResetError(), TimeoutError()
        got, used, reports = self.attempts([ConnectionRefusedError(), 429, slow], session="cart")
        self.assertEqual((slow, ["p0", "p1", "p2"]), (got, used))
        self.assertEqual([("p0", "connect_error", ""), ("p1", "rate_limited", "shop.example"), ("p2", "proxy_timeout", "")], reports)
        with mock.patch.object(_attempts, "judge", lambda error, url: proxylease.judge(error=error, url=url, stage="tunnel")):
            got, used, reports = self.attempts([closed, slow, 200])
        self.assertEqual((200, ["p0", "p1", "p2"]), (got, used))
        self.assertEqual([("p1", "target_timeout", "first.example"), ("p2", "ok", "shop.example")], reports)

    def test_what_a_retry_does_not_change_is_not_repeated(self):
        mistake = ValueError("x")
        for outcome in (404, 503, mistake):
            self.assertEqual((outcome, ["p0"], []), self.attempts([outcome]))

    def test_the_end_of_the_lease_is_no_exception_to_catch(self):
        got, used, _ = self.attempts([proxylease.Lost("gone"), 200])
        self.assertEqual((200, ["p0", "p1"]), (got, used))

    def test_without_any_proxy(self):
        got, used, _ = self.attempts([], proxies=1, patience=0, exclude=["crawl/p0"])
        self.assertEqual((proxylease.NoProxy, []), (type(got), used))

    def test_a_result_that_is_no_response_needs_a_judge(self):
        client = self.client(self.discovery())
        with self.assertRaisesRegex(TypeError, "pass judge="):
            client.attempts(lambda lease: "text")
        self.assertEqual("text", client.attempts(lambda lease: "text", judge=lambda text: proxylease.Verdict("ok")))


class Recipes(unittest.TestCase):
    def test_those_of_chromium_send_nothing_past_the_proxy(self):
        with open(os.path.join(harness.HERE, "../../../docs/clients.md"), encoding="utf-8") as file:
            recipes = [text.split("```")[0] for text in file.read().split("```python\n")[1:]]
        browsers = [text for text in recipes if "Chromium" in text]
        self.assertEqual(2, len(browsers))
        for text in browsers:
            self.assertIn("--{force}webrtc-ip-handling-policy=disable_non_proxied_udp", text)
            self.assertIn('("", "force-")', text)
            self.assertTrue("--proxy-bypass-list=<-loopback>" in text or "playwright" in text, "Playwright sets it itself")


CRAWL = """
import asyncio, os, signal, sys, threading, time
import proxylease, proxylease.aio
client = proxylease.Client(sys.argv[1])
"""
ENDS = {
    "the end of the script": "lease = client.lease()",
    "an exception": "lease = client.lease(); 1 / 0",
    "sys.exit": "lease = client.lease(); sys.exit(3)",
    "SIGINT while it works": "lease = client.lease(); print('ready', flush=True); time.sleep(60)",
    "SIGINT while it waits for a lease": "a = client.lease(); threading.Timer(0.3, print, ['ready'], {'flush': True}).start(); client.lease(patience=60)",
    "SIGINT twice": "a = client.lease()\ntry: print('ready', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: print('ready', flush=True); time.sleep(60)",
    "SIGINT under asyncio": "async def main():\n c = proxylease.aio.Client(sys.argv[1]); await c.lease(); print('ready', flush=True); await asyncio.sleep(60)\nasyncio.run(main())",
    "an exception under asyncio": "async def main():\n c = proxylease.aio.Client(sys.argv[1]); await c.lease(); 1 / 0\nasyncio.run(main())",
    "a closed event loop": "c = proxylease.aio.Client(sys.argv[1]); loop = asyncio.new_event_loop(); loop.run_until_complete(c.lease()._acquire()); loop.close()",
    "a closed event loop, while the process goes on": "async def main():\n await proxylease.aio.Client(sys.argv[1]).lease()\nloop = asyncio.new_event_loop(); loop.run_until_complete(main()); loop.close(); import gc; gc.collect(); print('over', flush=True); sys.stdin.read()",
    "a fork that exits first": "lease = client.lease()\nif os.fork() == 0: sys.exit(0)\nos.wait(); assert lease.error is None; client.submit(client.keeper.report(lease._held, 'ok')).result(); print('forked', flush=True)",
}  # fmt: skip


class Ends(Base):
    def crawl(self, script):
        """Runs a script that leases, and ends in some way."""
        d = self.discovery()
        with subprocess.Popen(
            [sys.executable, "-c", CRAWL + script, d.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=os.path.dirname(harness.HERE), start_new_session=True,
        ) as proc:  # fmt: skip
            self.addCleanup(proc.kill)
            for _ in range(script.count("ready")):
                self.assertEqual("ready", proc.stdout.readline().strip())
                proc.send_signal(signal.SIGINT)
            if "over" in script:
                self.assertEqual("over", proc.stdout.readline().strip())
                harness.until(lambda: not d.leases)
            out, err = proc.communicate(timeout=60)
        self.assertEqual({}, d.leases, err)
        self.assertEqual(1, d.count, "one lease was granted: " + err)
        self.assertEqual("forked" in script, "forked" in out, err)


def _add(name, script):
    setattr(Ends, "test_given_back_after_" + name.replace(" ", "_").replace(",", ""), lambda self: self.crawl(script))


for _name, _script in ENDS.items():
    _add(_name, _script)
