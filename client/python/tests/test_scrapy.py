"""Crawls by a real Scrapy through proxies of a scripted discovery. All crawls run at once in one reactor, and each test
looks at one of them."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import proxylease
from proxylease import _keeper

from . import harness, test_cases
from .harness import Discovery

try:
    import scrapy
    from scrapy.crawler import CrawlerProcess
    from scrapy.utils.project import get_project_settings  # noqa: F401

    from proxylease import scrapy as leased
    from proxylease.scrapy import pool
except ImportError:
    scrapy = None

SITE = harness.SITE
AT_ONCE = 8  # crawls


class Spider(scrapy.Spider if scrapy else object):
    name = "test"

    def __init__(self, crawl, **kwargs):
        super().__init__(**kwargs)
        self.crawl = crawl

    async def start(self):  # Scrapy 2.13 and later
        for request in self.start_requests():
            yield request

    def start_requests(self):
        for url in self.crawl.urls:
            yield scrapy.Request(
                url, callback=self.parse, errback=self.failed, dont_filter=True, meta=dict(self.crawl.meta), method=getattr(self.crawl, "method", "GET")
            )

    def parse(self, response):
        self.crawl.pages.append((response.url, response.meta.get("proxylease_proxy"), time.monotonic()))
        yield from self.crawl.follow(self, response)

    def failed(self, failure):
        self.crawl.failed.append((failure.request.url, failure.value, time.monotonic()))


class Crawl:
    """One crawl: its fleet, its pages and what became of them."""

    def __init__(self, urls, proxies, settings=None, meta=None, follow=None, slots=20, method="GET", **discovery):
        self.method = method
        self.servers = {name: harness.Server(serve) if callable(serve) else None for name, serve in proxies.items()}
        ports = {name: server.port if server else proxies[name] for name, server in self.servers.items()}
        self.d = Discovery(ports, slots=slots, **discovery)
        self.urls, self.pages, self.failed = urls, [], []
        self.meta, self.follow = meta or {}, follow or (lambda spider, response: ())
        self.settings = {
            "DOWNLOADER_MIDDLEWARES": {"proxylease.scrapy.LeaseMiddleware": 580},
            "DOWNLOAD_HANDLERS": {"http": "proxylease.scrapy.LeaseHandler", "https": "proxylease.scrapy.LeaseHandler"},
            "PROXYLEASE_URL": self.d.url, "PROXYLEASE_TTL": 60, "PROXYLEASE_PATIENCE": 60, "RETRY_ENABLED": False, "ROBOTSTXT_OBEY": False,
            "TELNETCONSOLE_ENABLED": False, "LOG_ENABLED": False, "DOWNLOAD_TIMEOUT": 60, **(settings or {}),
        }  # fmt: skip

    def names(self):
        return [name for _, name, _ in self.pages]

    def close(self):
        self.d.__exit__()
        for server in filter(None, self.servers.values()):
            server.close()


def https(path="/", site=SITE):
    return "https://%s%s" % (site, path)


def works(answer=lambda path, headers: harness.response(200)):
    return harness.proxy(harness.site(answer))


def refuses(status):
    return harness.proxy(test_cases.close, connect=b"HTTP/1.1 %d Reason\r\nContent-Length: 0\r\n\r\n" % status)


def closed_port():
    return 1  # tcpmux, which nothing listens on


def freezes_after(pages):
    """A proxy that works for that many connections, and then accepts them and never answers."""
    count, good = [0], works()

    def serve(conn):
        count[0] += 1
        (good if count[0] <= pages else harness.freeze)(conn)

    return serve


def picky(paths, status=403, headers=""):
    return works(lambda path, _: harness.response(status, b"no", headers) if path in paths else harness.response(200))


def resting(seconds, sites, proxies):
    """Cooldowns that discovery has at the start."""
    return {(name, site): time.monotonic() + seconds for name in proxies for site in sites}


def crawls():
    """The crawls, by name."""
    out = {}
    out["CONNECT refused"] = Crawl([https(site="dead.example")], {"p%d" % n: refuses(503) for n in range(4)})
    out["freezes"] = Crawl(
        [https("/%d" % n) for n in range(8)], {"p0": freezes_after(2), "p1": works(), "p2": works()}, {"DOWNLOAD_TIMEOUT": 4, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    )
    urls = [https("/%d" % n) for n in range(40)]
    bad = ("/7", "/21")
    out["two URLs refused"] = Crawl(urls, {"p%d" % n: picky(bad) for n in range(6)})
    out["one proxy banned"] = Crawl(urls[:10], {"p0": works(lambda *_: harness.response(403)), "p1": works(), "p2": works()})
    out["the only proxy banned"] = Crawl(urls[:1], {"p0": works(lambda *_: harness.response(403))}, {"PROXYLEASE_PATIENCE": 2})
    out["all rest for a moment"] = Crawl(urls[:5], {"p0": works()})
    out["all rest for a moment"].d.rests = resting(1.5, [SITE], ["p0"])
    out["all rest for long"] = Crawl(urls[:3], {"p0": works()}, {"PROXYLEASE_PATIENCE": 1})
    out["all rest for long"].d.rests = resting(600, [SITE], ["p0"])
    out["a closed port"] = Crawl(urls[:3], {"p0": closed_port(), "p1": works()})
    out["an exception of another name"] = Crawl(
        urls[:2], {"p0": works(), "p1": works()}, {"PROXYLEASE_DOWNLOAD_HANDLERS": {"https": "tests.test_scrapy.Renames"}} if scrapy else {}
    )
    out["a handler for http"] = Crawl(
        ["http://%s/%d" % (SITE, n) for n in range(2)], {"p0": harness.plain_site(answers_200), "p1": harness.plain_site(answers_200)},
        {"PROXYLEASE_DOWNLOAD_HANDLERS": {"http": "tests.test_scrapy.Renames"}},
    )  # fmt: skip
    bad = ["/%d" % n for n in range(10, 40)]
    out["many URLs refused"] = Crawl([https("/%d" % n) for n in range(80)], {"p%d" % n: picky(bad) for n in range(6)})
    banned = works(lambda *_: harness.response(403, b"", "Retry-After: 7\r\n"))
    out["most proxies banned"] = Crawl(urls, {**{"p%d" % n: banned for n in range(3)}, "p3": works(), "p4": works()}, {"CONCURRENT_REQUESTS_PER_DOMAIN": 1})
    out["posts refused"] = Crawl([https("/%d" % n) for n in range(3)], {"p0": banned, "p1": works()}, {"CONCURRENT_REQUESTS_PER_DOMAIN": 1}, method="POST")
    out["a copy of meta"] = Crawl([https("/0")], {"p0": works()}, follow=copies_meta)
    opted = harness.Server(harness.plain_site(answers_200))
    out["no lease wanted"] = Crawl(["http://127.0.0.1:%d/" % opted.port], {"p0": works()}, meta={"proxylease": False})
    out["no lease wanted"].servers["site"] = opted
    sites = ["a." + SITE, "b." + SITE]
    out["two sites rest"] = Crawl([https("/%d" % n, site) for n in range(20) for site in sites] + [https()], {"p0": works()}, {"PROXYLEASE_PATIENCE": 25})
    out["two sites rest"].d.rests = resting(600, sites, ["p0"])
    moved = works(lambda path, _: harness.response(302, b"", "Location: https://b.%s/403\r\n" % SITE) if path == "/first" else harness.response(403 if path == "/403" else 200))
    out["redirect"] = Crawl([https("/first")], {"p0": moved}, {"PROXYLEASE_PATIENCE": 1})
    out["a delay"] = Crawl(urls[:12], {"p0": works(lambda *_: harness.response(429, b"", "Retry-After: 7\r\n")), "p1": works()}, {"DOWNLOAD_DELAY": 0.2})
    out["scheme"] = Crawl(urls[:1], {"p0": works()}, scheme="https")
    out["two proxies a site"] = Crawl(urls, {"p0": works(), "p1": works()}, {"PROXYLEASE_PROXIES_PER_SITE": 2, "DOWNLOAD_DELAY": 0.05}, slots=1)
    login = harness.proxy(harness.site(lambda *_: harness.response(200)), login="user:p=a/s@s:")
    out["login"] = Crawl(urls[:3], {"p0": login}, login="user:p%3Da%2Fs%40s%3A")
    out["login, plain"] = Crawl(["http://%s/" % SITE], {"p0": harness.plain_site(wants("user:p=a/s@s:"))}, login="user:p%3Da%2Fs%40s%3A")
    own = harness.Server(works())
    out["a proxy of its own"] = Crawl(urls[:1], {"p0": closed_port()}, meta={"proxy": "http://127.0.0.1:%d" % own.port})
    out["a proxy of its own"].servers["own"] = own
    out["unusable"] = Crawl([https("/0")], {"p0": works(), "p1": works()}, follow=until_another_proxy)
    hangs = works(lambda path, _: None)
    out["lost in flight"] = Crawl([https("/0")], {"p0": hangs, "p1": works()})
    lose_when_busy(out["lost in flight"])
    out["ban by status"] = Crawl(urls[:4], {"p0": picky(["/%d" % n for n in range(4)], 503), "p1": works()}, {"PROXYLEASE_BAN_STATUSES": {SITE: [503]}})
    captcha = works(lambda *_: harness.response(200, b"prove that you are no robot"))
    out["ban by text"] = Crawl(urls[:4], {"p0": captcha, "p1": works()}, {"PROXYLEASE_BAN_TEXTS": ["no robot"]})
    out["many wait"] = Crawl(urls, {"p0": works()}, {"PROXYLEASE_MAX_WAITING": 5})
    out["many wait"].d.rests = resting(1.5, [SITE], ["p0"])
    return out


def answers_200(*_):
    return harness.response(200)


def copies_meta(spider, response):
    """A second request with the meta of the first, and one with a proxy that is None."""
    state = response.meta.get("_proxylease", {})
    spider.crawl.states = [*getattr(spider.crawl, "states", []), (state.get("changes"), state.get("waited"))]
    if len(spider.crawl.pages) == 1:
        yield scrapy.Request(https("/1"), callback=spider.parse, errback=spider.failed, meta={"proxy": response.meta["proxy"]})
    if len(spider.crawl.pages) == 2:
        yield scrapy.Request(https("/2"), callback=spider.parse, errback=spider.failed, meta=dict(response.meta, proxy="http://127.0.0.1:1"))


def wants(login):
    import base64

    code = base64.b64encode(login.encode()).decode().lower()
    return lambda path, headers: harness.response(200 if code in headers else 407)


def until_another_proxy(spider, response):
    """Pages until the lease is changed, which the next renewals ask for."""
    crawl = spider.crawl
    crawl.d.status["p0"] = {"verdict": "Unhealthy", "usable": False, "message": "probes fail"}
    if len(set(crawl.names())) == 1 and len(crawl.pages) < 500:
        yield scrapy.Request(https("/%d" % len(crawl.pages)), callback=spider.parse, errback=spider.failed, dont_filter=True)


def lose_when_busy(crawl):
    def lose():
        harness.until(lambda: crawl.servers["p0"].open, 60)
        time.sleep(0.5)
        crawl.d.rests["p0", "*"] = time.monotonic() + 600
        crawl.d.leases.clear()

    threading.Thread(target=lose, daemon=True).start()


if scrapy:
    from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler

    class Unheard(Exception):
        """An exception of a later Scrapy."""

    class Renames(HTTP11DownloadHandler):
        """Fails through the first proxy, in the way of either API of handlers."""

        lazy = False

        def download_request(self, request, *spider):
            if request.meta["proxylease_proxy"] == "crawl/p0":
                raise Unheard("?")
            return super().download_request(request, *spider)

    import inspect

    if inspect.iscoroutinefunction(HTTP11DownloadHandler.download_request):

        async def _download(self, request):
            if request.meta["proxylease_proxy"] == "crawl/p0":
                raise Unheard("?")
            return await HTTP11DownloadHandler.download_request(self, request)

        Renames.download_request = _download

    class Recording(leased.LeaseMiddleware):
        """Records verdicts."""

        def _act(self, request, verdict, cause):
            self.crawler.spider.crawl.verdict = (verdict, cause)
            return super()._act(request, verdict, cause)


def case_crawls(stack):
    """A crawl of one page for each case of cases.json, and each way in which it happens."""
    out = {}
    for case in test_cases.CASES:
        if case["is"] in ("unknown", "lease_ended") or case["name"] == "the proxy's own certificate is not trusted":
            continue  # above; Scrapy cannot speak TLS with a proxy
        proxies, url = stack.enter_context(test_cases.proxies_of(case))
        for n, proxy in enumerate(proxies):
            crawl = Crawl([url], {}, {"PROXYLEASE_MAX_CHANGES": 0, "DOWNLOADER_MIDDLEWARES": {"tests.test_scrapy.Recording": 580}})
            if case["is"] == "timeout" or (case["at"], case["is"]) == ("connect", "closed"):
                crawl.settings["DOWNLOAD_TIMEOUT"] = 4
            if case["is"] == "untrusted":
                crawl.settings["DOWNLOADER_CLIENTCONTEXTFACTORY"] = "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory"
            host, port = proxy.rpartition("/")[2].split(":")
            crawl.d.proxies, crawl.d.host = {"p0": int(port)}, host
            crawl.case = case
            out[case["name"], n] = crawl
    return out


@unittest.skipUnless(scrapy, "Scrapy is not installed: apt-get install python3-scrapy")
class Crawls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.stack.enter_context(mock.patch.object(_keeper, "RENEWALS_PER_TTL", 300))
        cls.all, cls.cases = crawls(), case_crawls(cls.stack)
        cls.log = cls.stack.enter_context(Logs())
        process = CrawlerProcess({"LOG_ENABLED": False}, install_root_handler=False)
        waiting = [*cls.all.values(), *cls.cases.values()]

        def start(*_):
            if waiting:
                crawl = waiting.pop(0)
                cls.stack.callback(crawl.close)
                crawl.crawler = process.create_crawler(type("S", (Spider,), {"custom_settings": crawl.settings}))
                process.crawl(crawl.crawler, crawl=crawl).addBoth(start)

        for _ in range(AT_ONCE):
            start()
        process.start()

    def crawl(self, name, pages, failed=0):
        """A crawl, which has given back all leases."""
        crawl = self.all[name]
        self.assertEqual((pages, failed), (len({p[0] for p in crawl.pages}), len(crawl.failed)), (crawl.pages, crawl.failed, crawl.d.reports))
        self.assertEqual({}, crawl.d.leases)
        return crawl

    def results(self, crawl):
        return [(name, result, target) for name, result, target, _ in crawl.d.reports]

    def test_503_to_CONNECT_concerns_that_target_alone(self):
        crawl = self.crawl("CONNECT refused", 0, 1)
        self.assertEqual({("p%d" % n, "target_unreachable", "dead.example") for n in range(4)}, set(self.results(crawl)))
        self.assertIsNotNone(crawl.d.choose({"target": "other.example"}))

    def test_a_proxy_that_freezes_is_left(self):
        crawl = self.crawl("freezes", 8)
        self.assertEqual([("p0", "proxy_timeout", "")], self.results(crawl))
        self.assertEqual(6, sum(name != "crawl/p0" for name in crawl.names()))

    def test_a_proxy_that_is_not_usable_is_left(self):
        crawl = self.all["unusable"]
        self.assertEqual({"crawl/p0", "crawl/p1"}, set(crawl.names()))
        self.assertEqual([], crawl.d.reports)

    def test_URLs_that_are_always_refused_cost_no_proxy(self):
        crawl = self.crawl("two URLs refused", 38, 2)
        self.assertLessEqual(len(self.results(crawl)), 2, "at most one ban for one URL")
        self.assertEqual([], self.results(crawl))
        self.assertEqual(2, crawl.crawler.stats.get_value("proxylease/gave_up/refused"))

    def test_many_URLs_in_a_row_that_are_refused_cost_no_proxy(self):
        crawl = self.crawl("many URLs refused", 50, 30)
        self.assertEqual([], self.results(crawl))

    def test_a_further_proxy_is_found_when_most_are_banned(self):
        crawl = self.all["most proxies banned"]
        self.assertGreater(len(crawl.pages), 20, (crawl.failed, crawl.d.reports))
        self.assertLessEqual({name for name, *_ in crawl.d.reports}, {"p0", "p1", "p2"})

    def test_a_POST_is_not_repeated_and_its_refusals_in_a_row_are_a_ban(self):
        crawl = self.crawl("posts refused", 0, 3)
        self.assertEqual(([("p0", "banned", SITE, 7)], 3), (crawl.d.reports, len(crawl.servers["p0"].times)))
        self.assertFalse([e for _, e, _ in crawl.failed if isinstance(e, leased.GaveUp)])

    def test_a_proxy_that_is_None_is_no_proxy_of_the_request(self):
        crawl = self.crawl("a copy of meta", 2, 1)
        self.assertEqual({"crawl/p0"}, set(crawl.names()))
        self.assertEqual([https("/2")], [url for url, *_ in crawl.failed], "its own proxy, which is closed")

    def test_a_request_that_wants_no_lease(self):
        crawl = self.crawl("no lease wanted", 1)
        self.assertEqual([], crawl.d.requests)

    def test_the_counts_of_a_request_end_with_its_page(self):
        for name in ("a copy of meta",):
            self.assertEqual({(0, 0.0)}, set(self.all[name].states))

    def test_a_handler_for_each_scheme(self):
        crawl = self.crawl("a handler for http", 2)
        self.assertEqual([("p0", "connect_error", "")], self.results(crawl))

    def test_a_proxy_that_is_banned_is_reported_once(self):
        crawl = self.crawl("one proxy banned", 10)
        self.assertEqual([("p0", "banned", SITE)], self.results(crawl))

    def test_the_only_proxy_is_banned(self):
        crawl = self.crawl("the only proxy banned", 0, 1)
        self.assertEqual([("p0", "banned", SITE)], self.results(crawl))
        self.assertIsInstance(crawl.failed[0][1], leased.GaveUp)

    def test_requests_wait_while_all_proxies_rest(self):
        self.crawl("all rest for a moment", 5)

    def test_what_is_given_up_is_logged_and_counted_and_reaches_errback(self):
        crawl = self.crawl("all rest for long", 0, 3)
        self.assertTrue(all(isinstance(e, leased.GaveUp) for _, e, _ in crawl.failed), crawl.failed)
        self.assertEqual(3, crawl.crawler.stats.get_value("proxylease/gave_up/no_proxy"))
        self.assertIn("<GET https://site.example/0> is given up: ", self.log.text())

    def test_a_proxy_that_refuses_connections(self):
        crawl = self.crawl("a closed port", 3)
        self.assertEqual([("p0", "connect_error", "")], self.results(crawl))

    def test_an_exception_that_is_not_known(self):
        crawl = self.crawl("an exception of another name", 2)
        self.assertEqual([("p0", "connect_error", "")], self.results(crawl))

    def test_a_healthy_site_does_not_wait_for_others(self):
        crawl = self.crawl("two sites rest", 1, 40)
        self.assertLess(crawl.pages[0][2], min(at for _, _, at in crawl.failed))
        waits = [r for r in crawl.d.calls("POST", "/v1/leases") if r["body"].get("wait")]
        self.assertLess(len(waits), 12, "one waiter for each site")

    def test_a_report_goes_to_the_site_of_the_response(self):
        crawl = self.crawl("redirect", 0, 1)
        self.assertEqual([("p0", "banned", "b." + SITE)], self.results(crawl))

    def test_requests_in_a_slot_get_the_new_lease(self):
        crawl = self.crawl("a delay", 12)
        self.assertEqual([("p0", "rate_limited", SITE, 7)], crawl.d.reports)
        reported = crawl.d.calls("POST", "/report")[0]["at"]
        late = [at for at in crawl.servers["p0"].times if at > reported]
        self.assertLessEqual(len(late), 1, "one may have been under way")

    def test_a_scheme_that_scrapy_cannot_speak(self):
        crawl = self.crawl("scheme", 0, 1)
        self.assertIn("has the scheme 'https'", str(crawl.failed[0][1]))
        self.assertEqual(["http"], crawl.d.requests[0]["body"]["schemes"])

    def test_two_proxies_a_site(self):
        crawl = self.crawl("two proxies a site", 40)
        self.assertEqual({"crawl/p0", "crawl/p1"}, set(crawl.names()))

    def test_credentials(self):
        self.crawl("login", 3)
        self.crawl("login, plain", 1)

    def test_a_proxy_of_the_request(self):
        crawl = self.crawl("a proxy of its own", 1)
        self.assertEqual([], crawl.d.requests)

    def test_a_lease_that_is_lost_in_flight(self):
        crawl = self.crawl("lost in flight", 1)
        self.assertEqual((["crawl/p1"], []), (crawl.names(), crawl.d.reports))

    def test_what_means_a_ban_is_set_per_site(self):
        for name in ("ban by status", "ban by text"):
            self.assertEqual([("p0", "banned", SITE)], self.results(self.crawl(name, 4)))

    def test_more_requests_wait_than_may_wait_aside(self):
        self.crawl("many wait", 40)

    def test_cases(self):
        for (name, n), crawl in self.cases.items():
            with self.subTest(case=name, way=n):
                case = dict(crawl.case)
                if (case["at"], case["is"]) == ("connect", "closed"):
                    case["report"] = "proxy_timeout"  # Scrapy does not see that, and waits for its timeout
                verdict, cause = crawl.verdict
                want = (case["report"], case["target"] == "request", case["changeProxy"], case["retry"], case.get("retryAfterSeconds"))
                self.assertEqual(want, (verdict.report, verdict.about_target, verdict.change_proxy, verdict.retry, verdict.retry_after), cause)
                reported = [] if case["report"] in (None, "ok") else [case["report"]]
                self.assertEqual(reported, [result for _, result, _, _ in crawl.d.reports])

    def test_no_lease_is_left(self):
        left = {name: crawl.d.leases for name, crawl in [*self.all.items(), *self.cases.items()] if crawl.d.leases}
        self.assertEqual({}, left)

    def test_nothing_is_deprecated(self):
        self.assertNotIn("proxylease", "\n".join(line for line in self.log.warnings if "deprecat" in line.lower()))

    def test_a_crawl_without_the_handler_is_refused(self):
        crawl = self.all["scheme"]
        settings = {**crawl.settings, "DOWNLOAD_HANDLERS": {}}
        with self.assertRaisesRegex(ValueError, "requests would go out without a proxy"):
            leased.LeaseMiddleware(mock.Mock(settings=scrapy.settings.Settings(settings)))


@unittest.skipUnless(scrapy, "Scrapy is not installed: apt-get install python3-scrapy")
class Waiting(unittest.TestCase):
    """Requests that wait in a pool, whose loop is the test."""

    def pool(self):
        settings = mock.Mock(patience=7.0, ttl=60, proxies_per_site=1)
        loop = mock.Mock()
        client = mock.Mock()
        client.submit.side_effect = lambda call: call.close()
        made = pool.Pool((SITE, "{}", ""), settings, client, loop)
        made.wants = []
        made._lease = mock.Mock(side_effect=lambda want, patience: made.wants.append((list(want.exclude), round(patience))) or mock.Mock())
        return made

    def test_each_has_its_own_patience(self):
        """One that comes late waits for its whole time, and takes no part in the end of the first's."""
        made, ended = self.pool(), []
        with mock.patch.object(pool.time, "monotonic", lambda: now[0]):
            now = [0.0]
            for at, name in ((0.0, "first"), (5.4, "late")):
                now[0] = at
                made.wait(set(), 7.0).addCallback(lambda error, name=name: ended.append(name))
            now[0] = 7.0
            no_proxy = proxylease.NoProxy(409, {"Retry-After": "600"}, {"error": "no_match"})
            made._acquired(mock.Mock(result=mock.Mock(side_effect=no_proxy)))
            self.assertEqual(["first"], ended)
            self.ask_again(made)
            self.assertEqual([([], 7), ([], 5)], made.wants)
            now[0] = 12.4
            made._acquired(mock.Mock(result=mock.Mock(side_effect=no_proxy)))
            self.assertEqual(["first", "late"], ended)

    def ask_again(self, made):
        made._loop.later.call_args[0][1]()

    def test_what_no_time_changes_ends_all_waits(self):
        for error in (proxylease.NoProxy(409, {}, {"error": "no_match"}), proxylease.APIError(401, {}, {}), proxylease.UnsupportedProxy("x")):
            made, ended = self.pool(), []
            made.wait(set(), 7.0).addCallback(ended.append)
            made._acquired(mock.Mock(result=mock.Mock(side_effect=error)))
            self.assertEqual([error], ended)


class Logs:
    """What is logged and warned."""

    def __enter__(self):
        import warnings

        self.records, self.warnings = [], []
        self.handler = logging.Handler()
        self.handler.emit = lambda record: self.records.append(record.getMessage())
        logging.getLogger("proxylease").addHandler(self.handler)
        self.catch = warnings.catch_warnings()
        self.catch.__enter__()
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, filename, *_: self.warnings.append("%s: %s: %s" % (filename, category.__name__, message))
        return self

    def __exit__(self, *error):
        self.catch.__exit__(*error)
        logging.getLogger("proxylease").removeHandler(self.handler)

    def text(self):
        return "\n".join(self.records)


END = """
import sys, json
from tests import test_scrapy, harness
import scrapy.crawler
crawl = test_scrapy.Crawl.__new__(test_scrapy.Crawl)
crawl.urls, crawl.pages, crawl.failed, crawl.meta = json.loads(sys.argv[2]), [], [], {}
process = scrapy.crawler.CrawlerProcess(json.loads(sys.argv[1]), install_root_handler=False)
process.crawl(test_scrapy.Spider, crawl=crawl)
process.start()
print("waiting requests given up:", len(crawl.failed))
"""


@unittest.skipUnless(scrapy, "Scrapy is not installed: apt-get install python3-scrapy")
class Ends(unittest.TestCase):
    def interrupt(self, times):
        frozen = harness.proxy(harness.freeze)
        crawl = Crawl([https("/%d" % n) for n in range(4)] + [https("/", "rests.example")], {"p0": frozen}, {"DOWNLOAD_TIMEOUT": 3, "PROXYLEASE_MAX_CHANGES": 0})
        crawl.d.rests = resting(600, ["rests.example"], ["p0"])
        self.addCleanup(crawl.close)
        with subprocess.Popen(
            [sys.executable, "-c", END, json.dumps(crawl.settings), json.dumps(crawl.urls)], cwd=os.path.dirname(harness.HERE),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        ) as proc:  # fmt: skip
            self.addCleanup(proc.kill)
            harness.until(lambda: len(crawl.servers["p0"].open) == 4 and len(crawl.d.requests) > 1, 60)
            for _ in range(times):
                proc.send_signal(signal.SIGINT)
                time.sleep(0.3)
            out, _ = proc.communicate(timeout=60)
        self.assertEqual({}, crawl.d.leases, out)
        return out

    def test_SIGINT_ends_waits_and_gives_leases_back(self):
        self.assertIn("waiting requests given up: 5", self.interrupt(1))

    def test_SIGINT_twice_gives_leases_back(self):
        self.interrupt(2)


if __name__ == "__main__":
    unittest.main()
