"""Reservations without an outcome: sent again while they are valid, settled by the inbox after.

- MQ_SENT and still unconfirmed at 10, 40 and 160 s, and older than the group's lag allows: the same
  message once more, at most a tenth of the drain rate (a lagging group must not get more work).
- Past valid_until, whatever its mq_status: no outcome → the consumer's reject transaction;
  rejected → release, also when it is DONE but still open; ordered → confirm, or release when due.
- Held ones are neither sent nor rejected; an id without a hash is dropped past valid_until.

The sweep never releases on its own judgement. Rules: `sweep-confirm`, `held-consumer`,
`rejected-release` of docs/protocol.md.
"""

from collections.abc import Sequence
from typing import Final

import structlog
from django.conf import settings

from inventory import verbs
from inventory.contracts import Reservation
from inventory.gate import gate
from inventory.states import MqStatus
from messaging import quarantine
from messaging.broker.base import SendOutcome
from messaging.errors import PermanentError
from messaging.selectors import GroupLag, group_lag
from messaging.topology import CG_ORDER_CREATE
from orders import metrics
from orders.contracts import CreateOrder, create_order_body, create_order_decoder
from orders.projection import confirm
from orders.reject_order import (
    KnownReservation,
    ReservationConflict,
    by_id,
    known_reservations,
    reject_expired,
)
from orders.release import release_reservations
from orders.scan.resend import Resender
from orders.scan.serving import serve_each
from orders.states import ReleaseState

log = structlog.get_logger(__name__)

PAGE: Final = 200
PAGES_A_ROUND: Final = 5
LAG_MARGIN_S: Final = 5.0
DRAIN_SHARE: Final = 0.1
# What may be sent when nothing drains at all: enough to find out, too little to hurt.
LEAST_PER_ROUND: Final = 5
_FOREVER_MS: Final = 2**53 - 1
# An id without a hash tells no SKU; `confirm` then only takes it out of the ZSETs.
_NO_SKU: Final = 0


class SweepJob:
    """One sweep over all sales that are served; a second one only doubles harmless work."""

    name: Final = "sweep"
    tick_s: Final = 1.0

    def __init__(self, *, resender: Resender | None = None) -> None:
        self._resender = resender or Resender()
        # How much of what must stay the last round of a sale stepped over, when it ended before
        # the end: the next goes on there, or a thousand held ones would hide the rest for ever.
        self._stayed: dict[int, int] = {}
        self._cursor_ms: dict[int, int] = {}
        # For how many of the ages each reservation was sent, kept until its valid_until (ms).
        self._ages_done: dict[str, tuple[int, int]] = {}

    def run_once(self) -> int:
        """Look once at every sale; returns how many reservations were settled or sent.

        Raises:
            GateUnavailable, TransientError: Redis cannot be reached for a sale.

        Cost: at rest two statements and two reads of Redis a sale.
        """
        lag = group_lag(CG_ORDER_CREATE)
        return serve_each(lambda activity_id: self._serve(activity_id, lag))

    def _serve(self, activity_id: int, lag: GroupLag) -> int:
        now_ms = gate().run(verbs.pending_stats(activity_id=activity_id)).redis_now_ms
        held = {
            row.reservation_id
            for row in quarantine.held_reservations(group=CG_ORDER_CREATE, activity_id=activity_id)
        }
        settled = self._settle(activity_id, now_ms=now_ms, held=held)
        return settled + self._resend(activity_id, now_ms=now_ms, held=held, lag=lag)

    def close(self) -> None:
        """Finish what is in flight and close the producer."""
        self._resender.close()

    # -- past valid_until ---------------------------------------------------------------------

    def _settle(self, activity_id: int, *, now_ms: int, held: set[str]) -> int:
        """Settle what is past its deadline, page by page; what must stay is stepped over.

        What leaves `open` meanwhile shifts the rest: whatever is missed has its turn when the next
        rounds begin at the start again.
        """
        settled, stay = 0, self._stayed.get(activity_id, 0)
        for _ in range(PAGES_A_ROUND):
            page = gate().run(
                verbs.open_page(
                    activity_id=activity_id,
                    min_score_ms=0,
                    max_score_ms=now_ms,
                    offset=stay,
                    limit=PAGE,
                )
            )
            self._stayed[activity_id] = stay + len(page)  # should this page fail
            ids = [reservation_id for reservation_id, _ in page if reservation_id not in held]
            metrics.SWEEP.labels(result="held").inc(len(page) - len(ids))
            left = self._settle_page(activity_id, ids) if ids else 0
            settled += left
            stay += len(page) - left
            self._stayed[activity_id] = stay
            if len(page) < PAGE:
                del self._stayed[activity_id]
                break
        return settled

    def _settle_page(self, activity_id: int, ids: Sequence[str]) -> int:
        """Obey what PostgreSQL says of each id; returns how many left the gate's ZSETs."""
        known = by_id(known_reservations(ids))
        missing = [reservation_id for reservation_id in ids if reservation_id not in known]
        dropped = 0
        if missing:
            dropped = self._reject_or_drop(activity_id, missing)
            known = by_id(known_reservations(ids))
        confirmed = self._confirm(activity_id, [one for one in known.values() if one.wants_confirm])
        ended = [i for i, one in known.items() if one.release_state is not ReleaseState.NONE]
        released = 0
        if ended:
            # Also DONE ones: an older copy of Redis may have brought the reservation back.
            result = release_reservations(ended, also_done=True)
            released = len(result.released)
            metrics.SWEEP.labels(result="released").inc(released)
            metrics.SWEEP.labels(result="deferred").inc(len(result.deferred))
        return dropped + confirmed + released

    def _reject_or_drop(self, activity_id: int, ids: Sequence[str]) -> int:
        """Run the reject transaction for what has a hash, drop what has none."""
        found = gate().run(verbs.reservations(activity_id=activity_id, reservation_ids=ids))
        gone = [i for i, reservation in zip(ids, found, strict=True) if reservation is None]
        messages = [message for r in found if r is not None and (message := _message(r))]
        if messages:
            _reject(messages)
            metrics.SWEEP.labels(result="rejected").inc(len(messages))
        if not gone:
            return 0
        # Its units stay with buyers[user]; the reconciler finds that buyer without an order.
        log.error("reservation_without_hash", activity_id=activity_id, count=len(gone))
        codes = confirm(activity_id, [(_NO_SKU, reservation_id) for reservation_id in gone])
        metrics.SWEEP.labels(result="dropped").inc(len(codes))
        return len(codes)

    @staticmethod
    def _confirm(activity_id: int, known: Sequence[KnownReservation]) -> int:
        codes = confirm(activity_id, [(one.sku_id, one.reservation_id) for one in known])
        left = sum(code.name != "RETRY" for code in codes)
        metrics.SWEEP.labels(result="confirmed").inc(left)
        return left

    # -- still valid --------------------------------------------------------------------------

    def _resend(self, activity_id: int, *, now_ms: int, held: set[str], lag: GroupLag) -> int:
        """Send again what is sent, unconfirmed, and older than the group's lag explains."""
        cursor_ms = max(self._cursor_ms.get(activity_id, 0), now_ms + 1)
        page = gate().run(
            verbs.open_page(
                activity_id=activity_id,
                min_score_ms=cursor_ms,
                max_score_ms=_FOREVER_MS,
                offset=0,
                limit=PAGE,
            )
        )
        ids = [reservation_id for reservation_id, _ in page]
        found = gate().run(verbs.reservations(activity_id=activity_id, reservation_ids=ids))
        candidates = [r for r in found if r is not None and r.mq_status == MqStatus.MQ_SENT]
        youngest_age_s = settings.SECKILL_SWEEP_AGES_S[0]
        old = any(r is not None and _age_s(r, now_ms) >= youngest_age_s for r in found)
        if len(page) == PAGE and old:
            self._cursor_ms[activity_id] = max(page[-1][1], cursor_ms + 1)
        else:
            self._cursor_ms.pop(activity_id, None)
            self._ages_done = {i: v for i, v in self._ages_done.items() if v[1] > now_ms}
        budget = max(LEAST_PER_ROUND, int(lag.drain_per_s * DRAIN_SHARE * self.tick_s))
        due = [
            r
            for r in candidates
            if r.reservation_id not in held and self._is_due(r, _age_s(r, now_ms), lag)
        ][:budget]
        if not due:
            return 0
        for reservation, result in self._resender.send(due):
            if result.outcome is not SendOutcome.DEFINITE_FAILURE:
                self._ages_done[reservation.reservation_id] = (
                    _ages_passed(_age_s(reservation, now_ms)),
                    reservation.valid_until_ms,
                )
        return len(due)

    def _is_due(self, reservation: Reservation, age_s: float, lag: GroupLag) -> bool:
        done, _ = self._ages_done.get(reservation.reservation_id, (0, 0))
        return _ages_passed(age_s) > done and age_s > lag.lag_s + LAG_MARGIN_S


def _ages_passed(age_s: float) -> int:
    return sum(age_s >= age for age in settings.SECKILL_SWEEP_AGES_S)


def _age_s(reservation: Reservation, now_ms: int) -> float:
    return (now_ms - reservation.created_at_ms) / 1000


def _message(reservation: Reservation) -> CreateOrder | None:
    """Build the message as the consumer would decode it; a damaged hash is left to a person."""
    try:
        return create_order_decoder.decode(create_order_body(reservation))
    except (PermanentError, ValueError):
        log.error("reservation_damaged", reservation_id=reservation.reservation_id)
        return None


def _reject(messages: Sequence[CreateOrder]) -> None:
    try:
        reject_expired(messages)
    except ReservationConflict:
        for message in messages:
            try:
                reject_expired([message])
            except ReservationConflict:
                log.warning("reject_conflict", reservation_id=message.reservation_id)
