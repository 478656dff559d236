"""What the answers of a run are worth: right, asked to come again, wrong, or none at all."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from seckill.admission.problems import PROBLEMS

ACCEPTED: Final = "202"
SOLD_OUT: Final = "409 SOLD_OUT"
ALREADY: Final = "409 ALREADY_RESERVED"
# What docs/api.md tells clients to repeat with the same key; a buyer who does so loses nothing.
COME_AGAIN: Final = frozenset(
    f"{kind.status} {code}" for code, kind in PROBLEMS.items() if kind.retry_after_s is not None
)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers that are neither an acceptance nor a right refusal, by `status code`.

    Args:
        again: documented requests to come again; no errors as long as the buyers end well.
        wrong: all others.
        none: requests without an answer, by reason.
        unanswered: buyers without a final answer at the end.
    """

    again: dict[str, int]
    wrong: dict[str, int]
    none: dict[str, int]
    unanswered: int = 0

    @property
    def errors(self) -> int:
        """How many are errors."""
        return sum(self.wrong.values()) + sum(self.none.values()) + self.unanswered

    @property
    def shown(self) -> dict[str, int]:
        """All of them: `answers` in the JSON, a row each in the table."""
        none = {f"none: {reason}": count for reason, count in self.none.items()}
        left = {"none at the end": self.unanswered} if self.unanswered else {}
        return self.again | self.wrong | none | left


def sort_answers(result: Mapping[str, Any], *, right: Collection[str] = (ACCEPTED,)) -> Answers:
    """Sort what the load generator counted.

    Args:
        result: the generator's `codes`, `errors` and `unanswered`.
        right: what buyers are rightly answered in this scenario.
    """
    rest = {code: count for code, count in result["codes"].items() if code not in right}
    asked = {code: count for code, count in rest.items() if code in COME_AGAIN}
    return Answers(
        again=asked,
        wrong={code: count for code, count in rest.items() if code not in asked},
        none=dict(result["errors"]),
        unanswered=result["unanswered"],
    )
