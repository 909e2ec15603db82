"""Leased proxies for Scrapy 2.8 and later. A lease is held for each site, and changed when the site refuses its proxy or
the proxy fails.

    # settings.py
    DOWNLOADER_MIDDLEWARES = {"proxylease.scrapy.LeaseMiddleware": 580}  # sees responses decompressed, before retries
    DOWNLOAD_HANDLERS = {"http": "proxylease.scrapy.LeaseHandler", "https": "proxylease.scrapy.LeaseHandler"}
    PROXYLEASE_URL = "http://discovery:8090"
    PROXYLEASE_TOKEN = os.environ["DISCOVERY_TOKEN"]

proxylease.scrapy.settings has the other settings. The handler chooses the proxy when a request leaves its downloader slot,
so that requests that wait there get the lease of that time. Requests with a meta["proxy"] are not changed, those
with meta["proxylease"] = False go out directly.
"""

from .handler import LeaseHandler
from .middleware import GaveUp, LeaseMiddleware

__all__ = ["GaveUp", "LeaseHandler", "LeaseMiddleware"]
