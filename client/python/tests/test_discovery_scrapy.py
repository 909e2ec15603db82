"""A crawl by a real Scrapy through proxies that a real discovery process leases. The tests of cmd/discovery run it, as
test_discovery.py. The site answers 429 to requests through the first proxy."""

import os
import tempfile
import unittest

try:
    import scrapy
    from scrapy.crawler import CrawlerProcess
except ImportError:
    scrapy = None

URL = os.environ.get("DISCOVERY_URL", "")


@unittest.skipUnless(scrapy, "Scrapy is not installed")
@unittest.skipUnless(URL, "DISCOVERY_URL is not set: go test ./cmd/discovery -run Scrapy runs this")
class Crawl(unittest.TestCase):
    def test_crawl(self):
        pages = []

        class Spider(scrapy.Spider):
            name = "test"
            start_urls = [os.environ["TARGET"] + "/picky/%d" % i for i in range(6)]

            def parse(self, response):
                pages.append((response.url, response.text, response.meta["proxylease_proxy"]))

        process = CrawlerProcess(
            {
                "DOWNLOADER_MIDDLEWARES": {"proxylease.scrapy.LeaseMiddleware": 580},
                "DOWNLOAD_HANDLERS": {"http": "proxylease.scrapy.LeaseHandler", "https": "proxylease.scrapy.LeaseHandler"},
                "PROXYLEASE_URL": URL,
                "PROXYLEASE_TOKEN": os.environ["DISCOVERY_TOKEN"],
                "RETRY_ENABLED": False,
                "ROBOTSTXT_OBEY": False,
                "TELNETCONSOLE_ENABLED": False,
                "LOG_LEVEL": "INFO",
                "HTTPCACHE_DIR": tempfile.gettempdir(),
            }
        )
        crawler = process.create_crawler(Spider)
        process.crawl(crawler)
        process.start()
        self.assertEqual(6, len({url for url, _, _ in pages}), pages)
        self.assertEqual({"reached"}, {text for _, text, _ in pages})
        self.assertEqual(1, len({lease for _, _, lease in pages}), "all by the second proxy")
        self.assertGreater(crawler.stats.get_value("downloader/response_status_count/429", 0), 0)


if __name__ == "__main__":
    unittest.main()
