"""Reads headers of responses, whose names may be in any case."""

from __future__ import annotations

import email.utils
import time
from typing import Any, Mapping, Optional

MAX_RETRY_AFTER = 24 * 3600  # seconds; a server that asks for more is taken to mean this


def header(headers: Mapping[str, str], name: str) -> Optional[str]:
    """The value of a header; None without it."""
    if name in headers:
        return headers[name]
    return next((value for key, value in headers.items() if key.lower() == name.lower()), None)


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
