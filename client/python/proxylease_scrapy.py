"""Scrapy middleware that leases a proxy for every site and changes it when the site refuses it. Needs proxylease.py
beside it.

    # settings.py
    DOWNLOADER_MIDDLEWARES = {"proxylease_scrapy.LeasedProxies": 740}  # before HttpProxyMiddleware, at 750
    PROXYLEASE_URL = "http://discovery:8090"
    PROXYLEASE_TOKEN = os.environ["DISCOVERY_TOKEN"]
    PROXYLEASE_SELECTOR = {"geo": "eu"}  # optional
    PROXYLEASE_MAX_CHANGES = 3  # optional: proxies to try for one request

There is one lease per site, until the spider closes or the site or the proxy fails. Requests with meta["proxy"] are not
changed.
"""

import threading
import urllib.parse

from scrapy import signals
from scrapy.exceptions import IgnoreRequest, NotConfigured
from twisted.internet.threads import deferToThread

import proxylease

_REFUSALS = ("rate_limited", "banned", "captcha", "proxy_timeout", "connect_error")


class LeasedProxies:
    def __init__(self, client, selector=None, max_changes=3):
        self._client = client
        self._selector = selector
        self._max_changes = max_changes
        self._leases = {}  # by site
        self._locks = {}
        self._lock = threading.Lock()

    @classmethod
    def from_crawler(cls, crawler):
        settings = crawler.settings
        if not settings.get("PROXYLEASE_URL"):
            raise NotConfigured("PROXYLEASE_URL is not set")
        client = proxylease.Client(settings["PROXYLEASE_URL"], settings.get("PROXYLEASE_TOKEN", ""))
        middleware = cls(client, settings.getdict("PROXYLEASE_SELECTOR"), settings.getint("PROXYLEASE_MAX_CHANGES", 3))
        crawler.signals.connect(middleware.spider_closed, signal=signals.spider_closed)
        return middleware

    def process_request(self, request, spider):
        if "proxy" in request.meta and "_proxylease" not in request.meta:
            return None
        # In a thread, since a wait for a lease must not block the crawl.
        return deferToThread(self._use, request)

    def process_response(self, request, response, spider):
        result = self.judge(response)
        if result not in _REFUSALS:
            return response
        return self._again(request, result) or response

    def process_exception(self, request, exception, spider):
        result = self.judge_exception(exception)
        return self._again(request, result) if result in _REFUSALS else None

    def spider_closed(self, spider):
        return deferToThread(self.close)

    def judge(self, response):
        """The result of a response. Override it to detect the captchas of your sites."""
        return proxylease.judge(status=response.status)

    def judge_exception(self, exception):
        """The result of an exception."""
        name = type(exception).__name__  # Twisted's, by name: they move between modules
        if name in ("TunnelError", "ConnectionRefusedError", "ConnectError"):
            return "connect_error"
        return "proxy_timeout" if name == "TCPTimedOutError" else None

    def close(self):
        with self._lock:
            leases, self._leases = list(self._leases.values()), {}
        for lease in leases:
            lease.close()

    def _use(self, request):
        site = urllib.parse.urlsplit(request.url).hostname
        with self._lock:
            lock = self._locks.setdefault(site, threading.Lock())
        with lock:  # one lease per site, however many requests need the first
            lease = self._leases.get(site)
            if lease is None or lease.error is not None:
                try:
                    lease = self._client.lease(target=site, selector=self._selector)
                except proxylease.NoProxy as error:
                    raise IgnoreRequest(str(error)) from error
                with self._lock:
                    self._leases[site] = lease
        request.meta["proxy"] = lease.proxy_url
        request.meta["_proxylease"] = lease.id
        # A tunnel in Scrapy's pool would outlive the lease, and the pool cannot close those of one proxy.
        request.headers["Connection"] = "close"

    def _again(self, request, result):
        """Reports the result, releases the proxy, and returns the request to be retried through another one."""
        site = urllib.parse.urlsplit(request.url).hostname
        with self._lock:
            lease = self._leases.get(site)
            if lease is None or lease.id != request.meta.get("_proxylease"):
                lease = None  # another request has released it already
            else:
                del self._leases[site]
        if lease is not None:
            threading.Thread(target=_give_up, args=(lease, result)).start()
        changes = request.meta.get("_proxylease_changes", 0)
        if changes >= self._max_changes:
            return None
        meta = {k: v for k, v in request.meta.items() if k != "proxy"}
        meta["_proxylease_changes"] = changes + 1
        headers = request.headers.copy()
        headers.pop(b"Proxy-Authorization", None)
        return request.replace(meta=meta, headers=headers, dont_filter=True)


def _give_up(lease, result):
    try:
        lease.report(result)
    except (proxylease.Error, OSError):
        pass  # a report is best effort
    lease.close()
