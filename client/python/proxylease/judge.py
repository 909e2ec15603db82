"""What follows from the result of one request through a leased proxy. The table is that of client/cases.json."""

from __future__ import annotations

import email.utils
import time
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from . import _exceptions as ex

__all__ = ["Verdict", "judge"]

MAX_RETRY_AFTER = 24 * 3600  # seconds; a site that asks for more is taken to mean this


@dataclass(frozen=True)
class Verdict:
    """What follows from the result of one request."""

    report: Optional[str] = None  # the result to report
    about_target: bool = False  # the report concerns the request's site, not the proxy alone
    change_proxy: bool = False  # the next attempt needs another proxy
    retry: bool = False  # the request may be sent again, if it is idempotent
    retry_after: Optional[int] = None  # seconds that the site asked for


_NOTHING = Verdict()
_PROXY_FAILED = Verdict("connect_error", change_proxy=True, retry=True)
_PROXY_SLOW = Verdict("proxy_timeout", change_proxy=True, retry=True)
_NO_ROUTE_TO_TARGET = Verdict("target_unreachable", about_target=True, change_proxy=True, retry=True)
_TARGET_SLOW = Verdict("target_timeout", about_target=True, change_proxy=True, retry=True)
_ANOTHER_PROXY = Verdict(change_proxy=True, retry=True)
_BANNED = Verdict("banned", about_target=True, change_proxy=True, retry=True)
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
    status: Optional[int] = None, headers: Optional[Mapping[str, str]] = None, error: Optional[BaseException] = None, stage: Optional[str] = None
) -> Verdict:
    """Returns what follows from a response (status, and headers for Retry-After) or from the exception that a library
    raised: requests, urllib3, httpx, aiohttp, http.client, urllib, asyncio, Twisted or Scrapy. stage is "proxy", "tunnel"
    or "response" where the caller knows how far the request came. Captchas look different on every site: report those yourself."""
    if error is not None:
        return _judge_error(error, stage)
    if status is None:
        raise ValueError("judge needs a status or an error")
    return _judge_status(status, headers or {})


def _judge_status(status: int, headers: Mapping[str, str]) -> Verdict:
    if status == 407:
        return _PROXY_FAILED
    if status == 429:
        after = parse_retry_after(headers.get("Retry-After") or headers.get("retry-after"))
        return Verdict("rate_limited", about_target=True, change_proxy=True, retry=True, retry_after=after)
    if status in (403, 451):
        return _BANNED
    return Verdict("ok", about_target=True) if status < 400 else _NOTHING


def _judge_error(error: BaseException, stage: Optional[str]) -> Verdict:
    found = ex.explain(error, stage)
    if found is None:
        return _NOTHING
    if found.connect_status is not None:
        return _PROXY_FAILED if found.connect_status == 407 else _NO_ROUTE_TO_TARGET
    if found.status is not None:
        return _judge_status(found.status, found.headers)
    known = _FAILURES.get((found.stage, found.kind))
    if known is not None:
        return known
    return {ex.PROXY: _PROXY_FAILED, ex.TUNNEL: _ANOTHER_PROXY}.get(found.stage, _TRY_AGAIN)


def parse_retry_after(value: Any) -> Optional[int]:
    """The seconds of a Retry-After header, which has a number or a date; None without one."""
    if not value:
        return None
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    try:
        seconds = int(text) if text.strip().isdigit() else int(email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
    return min(seconds, MAX_RETRY_AFTER) if seconds > 0 else None
