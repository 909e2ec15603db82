"""Decides on the attempts at one URL, each through another proxy: what is reported, and whether there is a further one."""

from __future__ import annotations

from typing import Any, Dict, Generic, List, Mapping, Optional, Set, Tuple, TypeVar

from .judge import Verdict, judge

L = TypeVar("L")

BANS = ("banned", "captcha")
ANOTHER = 5.0  # seconds for which a refused URL waits for another proxy


class Attempts(Generic[L]):
    """The attempts at one URL. A refusal is the proxy's doing if another proxy gets the page, or if there is no other; it is
    the URL's if at least two proxies were refused."""

    def __init__(self, limit: int, want: Mapping[str, Any]) -> None:
        if limit < 1:
            raise ValueError("n, the number of attempts, must be at least 1")
        self._left, self._want = limit, dict(want)
        self._url = str(want.get("target") or "")
        self._exclude: Set[str] = set(want.get("exclude") or ())
        self._suspects: List[Tuple[L, Verdict]] = []
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self.started = False  # an attempt was made

    def want(self) -> Dict[str, Any]:
        """The arguments for the next lease: on a proxy that has not failed."""
        want: Dict[str, Any] = {**self._want, "exclude": sorted(self._exclude)}
        if self._suspects:
            want["patience"] = min(ANOTHER, want.get("patience", ANOTHER))
        return want

    def judge_error(self, error: Exception) -> Verdict:
        """What follows from an exception."""
        return judge(error=error, url=self._url)

    def conclude(self, lease: L, name: str, verdict: Verdict) -> List[Tuple[L, Verdict]]:
        """Takes the outcome of an attempt, and returns what to report now."""
        self.started = True
        self._left -= 1
        reports = [(lease, verdict)]
        if verdict.report in BANS:
            self._suspects += reports
            reports = []
        elif verdict.report == "ok":
            reports = self._suspects + reports
            self._suspects = []
        if verdict.change_proxy:
            self._exclude.add(name)
        if not verdict.retry:
            self._left = 0
        return reports if self._left else reports + self.end()

    @property
    def over(self) -> bool:
        """Whether there is no further attempt."""
        return self._left == 0

    def end(self) -> List[Tuple[L, Verdict]]:
        """Ends the attempts, also for want of another proxy, and returns what is left to report."""
        self._left = 0
        suspects, self._suspects = self._suspects, []
        return suspects if len(suspects) == 1 else []

    def outcome(self) -> Any:
        """The result of the last attempt."""
        if self.error is not None:
            raise self.error
        return self.result
