"""The settings, all of which begin with PROXYLEASE_.

URL, TOKEN          discovery, and the token for it
SELECTOR            attributes that proxies must have, such as {"geo": "eu"}; meta["proxylease_selector"] of a request precedes it
SESSION             a session name, for proxies that stay the same; meta["proxylease_session"] precedes it
PROXIES_PER_SITE    proxies that are leased for one site at once (1)
TTL                 seconds of a lease, which is renewed while in use (300)
PATIENCE            seconds that one request waits for a proxy, in all, before it is given up (600)
MAX_WAITING         requests that wait for a proxy without taking part in CONCURRENT_REQUESTS (1000)
MAX_CHANGES         times that one request is repeated through another proxy (3)
MAX_REFUSALS        proxies that are refused for one URL before it is given up, and the proxies are kept (3)
BAN_STATUSES        statuses that mean a ban ([403, 451]), for all sites, or {"shop.example": [403, 503], "*": [403]}
BAN_TEXTS           texts in a page that mean a ban ([]), for all sites, or by site as above
DOWNLOAD_HANDLERS   the handlers that download ({}), by scheme, http and https; those of DOWNLOAD_HANDLERS_BASE are the default
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from scrapy.exceptions import NotConfigured


class Settings:
    """The settings of one crawl."""

    def __init__(self, settings: Any) -> None:
        self.url: str = settings.get("PROXYLEASE_URL") or ""
        if not self.url:
            raise NotConfigured("PROXYLEASE_URL is not set")
        self.token: str = settings.get("PROXYLEASE_TOKEN") or ""
        self.selector: Dict[str, str] = settings.getdict("PROXYLEASE_SELECTOR")
        self.session: str = settings.get("PROXYLEASE_SESSION") or ""
        self.proxies_per_site: int = max(1, settings.getint("PROXYLEASE_PROXIES_PER_SITE", 1))
        self.ttl: float = settings.getfloat("PROXYLEASE_TTL", 300)
        self.patience: float = settings.getfloat("PROXYLEASE_PATIENCE", 600)
        self.max_waiting: int = settings.getint("PROXYLEASE_MAX_WAITING", 1000)
        self.max_changes: int = settings.getint("PROXYLEASE_MAX_CHANGES", 3)
        self.max_refusals: int = max(1, settings.getint("PROXYLEASE_MAX_REFUSALS", 3))
        self.ban_statuses = _by_site(settings.get("PROXYLEASE_BAN_STATUSES"), [403, 451])
        self.ban_texts = _by_site(settings.get("PROXYLEASE_BAN_TEXTS"), [])
        self.handlers: Dict[str, str] = {**settings.getdict("DOWNLOAD_HANDLERS_BASE"), **settings.getdict("PROXYLEASE_DOWNLOAD_HANDLERS")}

    def statuses(self, site: str) -> List[int]:
        """The statuses that mean a ban at a site."""
        return [int(status) for status in _of(self.ban_statuses, site)]

    def texts(self, site: str) -> List[str]:
        """The texts that mean a ban at a site."""
        return [str(text) for text in _of(self.ban_texts, site)]

    def key(self, request: Any, site: str) -> Tuple[str, str, str]:
        """What a lease for the request must be for: site, selector and session."""
        selector: Mapping[str, str] = request.meta.get("proxylease_selector", self.selector)
        return site, json.dumps(selector, sort_keys=True), request.meta.get("proxylease_session", self.session)


def _by_site(value: Any, default: Sequence[Any]) -> Dict[str, Sequence[Any]]:
    if isinstance(value, str):
        value = json.loads(value) if value.startswith(("{", "[")) else value.split(",")  # of the command line
    if value is None:
        value = default
    return {"*": default, **value} if isinstance(value, Mapping) else {"*": value}


def _of(by_site: Mapping[str, Sequence[Any]], site: str) -> Sequence[Any]:
    return by_site[site] if site in by_site else by_site["*"]
