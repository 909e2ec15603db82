"""What follows from the result of one request through a leased proxy. The table is that of client/cases.json."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass, replace
from typing import Any, Dict, Mapping, Optional, Tuple

from . import _exceptions as ex
from ._headers import header, parse_retry_after

__all__ = ["Verdict", "judge", "judge_response"]


@dataclass(frozen=True)
class Verdict:
    """What follows from the result of one request."""

    report: Optional[str] = None  # the result to report
    about_target: bool = False  # the report concerns the request's site, not the proxy alone
    change_proxy: bool = False  # the next attempt needs another proxy
    retry: bool = False  # the request may be sent again, if it is idempotent
    retry_after: Optional[int] = None  # seconds that the site asked for
    target: str = ""  # the site of the request, which a redirect may have changed


_NOTHING = Verdict()
_PROXY_FAILED = Verdict("connect_error", change_proxy=True, retry=True)
_PROXY_SLOW = Verdict("proxy_timeout", change_proxy=True, retry=True)
_NO_ROUTE_TO_TARGET = Verdict("target_unreachable", about_target=True, change_proxy=True, retry=True)
_TARGET_SLOW = Verdict("target_timeout", about_target=True, change_proxy=True, retry=True)
_ANOTHER_PROXY = Verdict(change_proxy=True, retry=True)
_TRY_AGAIN = Verdict(retry=True)

# By where the request failed and how. What is missing counts as a failure of the proxy before the tunnel, and as
# none within it.
_FAILURES: Dict[Tuple[str, str], Verdict] = {
    (ex.PROXY, ex.TIMEOUT): _PROXY_SLOW,
    (ex.TUNNEL, ex.TIMEOUT): _TARGET_SLOW,
    (ex.TUNNEL, ex.UNTRUSTED): _NOTHING,
    (ex.TUNNEL, ex.CLOSED): _ANOTHER_PROXY,
    (ex.TUNNEL, ex.LEASE_ENDED): _ANOTHER_PROXY,
    (ex.PROXY, ex.LEASE_ENDED): _ANOTHER_PROXY,
    (ex.RESPONSE, ex.TIMEOUT): _TARGET_SLOW,
    (ex.RESPONSE, ex.LEASE_ENDED): _ANOTHER_PROXY,
}


def judge(
    status: Optional[int] = None,
    headers: Optional[Mapping[str, str]] = None,
    error: Optional[BaseException] = None,
    stage: Optional[str] = None,
    url: Any = "",
) -> Verdict:
    """Returns what follows from a response (status, and headers for Retry-After) or from the exception that a library
    raised: requests, urllib3, httpx, aiohttp, http.client, urllib, asyncio, Twisted or Scrapy. stage is "proxy", "tunnel"
    or "response" where the caller knows how far the request came. url is that of the response, after redirects: its site is
    the verdict's target, and a 407 is the proxy's only to a plain http request. The URL in an exception precedes it.
    Captchas look different on every site: report those yourself."""
    if error is not None:
        url = ex.url_of(error) or str(url)
        return _at(_judge_error(error, stage, url), url)
    if status is None:
        raise ValueError("judge needs a status or an error")
    return _at(_judge_status(status, headers or {}, str(url)), str(url))


def judge_response(response: Any) -> Verdict:
    """Returns what follows from a response of requests, httpx, aiohttp, urllib3 or urllib."""
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    if not isinstance(status, int):
        raise TypeError(f"{type(response).__name__} has neither status_code nor status: pass judge=, a function from it to a Verdict")
    return judge(status, getattr(response, "headers", None), url=getattr(response, "url", None) or "")


def _at(verdict: Verdict, url: str) -> Verdict:
    target = urllib.parse.urlsplit(url).hostname or "" if verdict.about_target and "://" in url else ""
    return replace(verdict, target=target) if target else verdict


def _judge_status(status: int, headers: Mapping[str, str], url: str) -> Verdict:
    if status == 407:
        return _PROXY_FAILED if url.lower().startswith("http:") else _NOTHING
    if status in (403, 429, 451):
        after = parse_retry_after(header(headers, "Retry-After"))
        return Verdict("rate_limited" if status == 429 else "banned", about_target=True, change_proxy=True, retry=True, retry_after=after)
    return Verdict("ok", about_target=True) if status < 400 else _NOTHING


def _judge_error(error: BaseException, stage: Optional[str], url: str) -> Verdict:
    found = ex.explain(error, stage)
    if found is None:
        return _NOTHING
    if found.connect_status is not None:
        return _PROXY_FAILED if found.connect_status == 407 else _NO_ROUTE_TO_TARGET
    if found.status is not None:
        return _judge_status(found.status, found.headers, url)
    known = _FAILURES.get((found.stage, found.kind))
    if known is not None:
        return known
    return {ex.PROXY: _PROXY_FAILED, ex.TUNNEL: _ANOTHER_PROXY}.get(found.stage, _TRY_AGAIN)
