"""What a random life is drawn from: who, which, how many, and what fails."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from messaging.topology import CG_SETTLEMENT
from tests.invariants import provider as payment
from tests.invariants.life import LIMIT
from tests.invariants.wire import CONFIRMED, DEFINITE, GROUPS, UNKNOWN_LOST, UNKNOWN_STORED

CRASHES: Final = (
    *("web.after_reserve", "web.after_send", "web.after_mark"),
    *("consumer.after_receive", "consumer.before_commit"),
    *("consumer.before_announce", "consumer.after_commit"),
    *("scanner.after_claim", "scanner.after_send", "sender.after_claim", "sender.after_publish"),
    *("cancel.before_commit", "operation.after_row", *["operation.after_gate"] * 2),
    *["release.after_gate"] * 4,
    *("payment.after_record", "payment.after_call", "payment.before_commit"),
    *("refund.after_record", "refund.after_call", "refund.before_commit", "webhook.before_commit"),
)
# Nothing makes up for an effect's event (its group's inbox and the broker do): it is never lost.
MAY_LOSE: Final = [group for group in GROUPS if group != CG_SETTLEMENT]

buyers = st.sampled_from(["ann", "bob", "cid", "dan", "eve", "fay"])
places = st.integers(0, 7)
counts = st.integers(1, 6)
mostly_one = st.sampled_from([1, 1, 1, 1, 1, 2, 2, LIMIT + 1])
fates = st.sampled_from([*[CONFIRMED] * 4, UNKNOWN_STORED, UNKNOWN_LOST, DEFINITE])
writes = st.sampled_from(
    [payment.OK, payment.OK, payment.DECLINE, payment.PENDING, payment.ERROR,
     payment.TIMEOUT_AFTER, payment.LATE]
)  # fmt: skip
queries = st.sampled_from([payment.OK, payment.OK, payment.ERROR, payment.NOT_FOUND])


Strategies = Mapping[str, st.SearchStrategy[Any]]
ACTIONS: dict[str, tuple[int, Strategies]] = {}
F = TypeVar("F", bound=Callable[..., None])


def action(often: int, **arguments: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """A step that a life may take, so much more often than those with 1.

    One rule draws them all: hypothesis would leave out half of its rules in each example, and a
    sale without buyers, or without deliveries, is no life.
    """

    def register(method: F) -> F:
        ACTIONS[method.__name__] = (often, arguments)
        return method

    return register


def steps() -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    names = [name for name, (often, _) in ACTIONS.items() for _ in range(often)]
    return st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), st.fixed_dictionaries(dict(ACTIONS[name][1])))
    )
