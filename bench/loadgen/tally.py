"""Counts of what came back."""

from typing import Final

from bench.loadgen.histogram import Histogram
from bench.loadgen.http1 import Response
from bench.loadgen.plan import Result

_RESERVATION_ID: Final = 30  # rsv_ and 26 characters
_CODE: Final = b'"code":"'


def answer_code(response: Response, data: bytes) -> str:
    """Return the stable `code` of a problem, or the `status` of an accepted request, else ''."""
    at = data.find(_CODE, response.body_start)
    if at < 0:
        return ""
    at += len(_CODE)
    return data[at : data.find(b'"', at)].decode("ascii", "replace")


def reservation_id(response: Response, data: bytes) -> bytes:
    """Return the first reservation id in an answer's body; b'' without one."""
    at = data.find(b'"rsv_', response.body_start)
    return data[at + 1 : at + 1 + _RESERVATION_ID] if at >= 0 else b""


class Tally:
    """Everything that one run counts."""

    def __init__(self) -> None:
        self.histogram = Histogram()
        self.reservations: dict[bytes, int] = {}  # id → user number
        self.queued = 0
        self.pending = 0
        self.holder_codes: dict[str, int] = {}
        self.double_reservations = 0
        self.answers = 0
        self._codes: dict[str, int] = {}
        self._plain: dict[int, int] = {}
        self.errors: dict[str, int] = {}

    def accepted(self, response: Response, data: bytes, user: int) -> bytes:
        """Count an answer 202; return its reservation id."""
        found = reservation_id(response, data)
        if found:
            self.reservations.setdefault(found, user)
        if data.find(b'"QUEUED"', response.body_start) >= 0:
            self.queued += 1
        elif data.find(b'"PENDING"', response.body_start) >= 0:
            self.pending += 1
        self._plain[202] = self._plain.get(202, 0) + 1
        return found

    def refused(self, response: Response, data: bytes) -> str:
        """Count any other answer; return its code."""
        code = answer_code(response, data)
        key = f"{response.status} {code}" if code else str(response.status)
        self._codes[key] = self._codes.get(key, 0) + 1
        return code

    def holder(self, response: Response, code: str) -> None:
        """Count once more what a holder was answered: a refusal that is right for others."""
        key = f"{response.status} {code}" if code else str(response.status)
        self.holder_codes[key] = self.holder_codes.get(key, 0) + 1

    def error(self, reason: str) -> None:
        """Count a request without an answer."""
        self.errors[reason] = self.errors.get(reason, 0) + 1

    @property
    def codes(self) -> dict[str, int]:
        """Counts by status and code."""
        return {str(status): count for status, count in self._plain.items()} | self._codes

    def result(self, *, seconds: float, unanswered: int = 0) -> Result:
        """Return what a run of `seconds` saw, at whose end so many had no final answer."""
        histogram = self.histogram
        return Result(
            requests=self.answers,
            seconds=round(seconds, 3),
            rate_per_s=round(self.answers / seconds, 1) if seconds else 0.0,
            p50_ms=histogram.percentile_ms(50),
            p95_ms=histogram.percentile_ms(95),
            p99_ms=histogram.percentile_ms(99),
            max_ms=round(histogram.max_us / 1000, 3),
            codes=dict(sorted(self.codes.items())),
            errors=self.errors,
            unanswered=unanswered,
            accepted=len(self.reservations),
            queued=self.queued,
            pending=self.pending,
            holder_codes=dict(sorted(self.holder_codes.items())),
            users_served=len(set(self.reservations.values())),
            double_reservations=self.double_reservations,
            histogram=histogram.sparse(),
        )
