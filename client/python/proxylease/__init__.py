"""Leases egress proxies from the discovery API. The standard library suffices; Python 3.9 or later.

    client = proxylease.Client("http://discovery:8090", token=os.environ["DISCOVERY_TOKEN"])
    with client.lease(target="shop.example") as lease:
        session = lease.closing(requests.Session())
        page = session.get("https://shop.example/", proxies=lease.proxies)
        lease.report(proxylease.judge(page.status_code, page.headers, url=page.url))

proxylease.aio has the same for asyncio, proxylease.scrapy what Scrapy needs. Logs go to the logger "proxylease"; they
contain no secrets.
"""

from .client import Client, Lease
from .errors import APIError, BadAnswer, ClientClosed, Error, Lost, NoProxy, Released, Unreachable, UnsupportedProxy
from .judge import Verdict, judge, judge_response

__all__ = [
    "Client", "Lease", "Verdict", "judge", "judge_response",
    "Error", "APIError", "BadAnswer", "ClientClosed", "Lost", "NoProxy", "Released", "Unreachable", "UnsupportedProxy",
]
