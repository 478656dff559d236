"""The outbox relay: claim, publish outside any transaction, mark. One round of one lane at a time.

A claim is a lease with a token: whoever lost it (a stall longer than the lease) marks nothing, and
its rows went out twice at most, with the same ids. A row that fails waits longer each time; a row
that can never be sent goes to quarantine, so that it starves nobody. See docs/messaging.md.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, assert_never

import structlog
from django.db import close_old_connections

import faultpoint
from messaging import metrics, outbox_rows, pool_wait
from messaging.backpressure import backoff_s
from messaging.broker.base import FailureClass, OutgoingMessage, Producer, SendOutcome, SendResult
from messaging.envelope import SCHEMA_VERSION
from messaging.outbox_rows import ClaimedRow, Later, Poison
from messaging.publish_log import record_send
from messaging.topic_breakers import TopicBreakers
from messaging.topology import TopicType, topic_spec

BATCH: Final = 64  # messages in one send of a NORMAL topic
BATCH_BYTES: Final = 200_000  # below the broker's limit of 256 KiB for a whole batch
SINGLES: Final = 16  # sends at once to topics that take no batch
_SUSPECT_AFTER: Final = 3  # a row that failed so often is sent alone
_RETRY_FIRST_S: Final = 0.5
_RETRY_CAP_S: Final = 60.0
_LEASE_SHARE: Final = 0.5  # no send begins in the second half of the lease

log = structlog.get_logger(__name__)


@dataclass(kw_only=True, slots=True)
class Round:
    """What became of the rows of one claim."""

    sent: list[ClaimedRow] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)


class Relay:
    """Rounds of claim, publish, mark; several threads may run rounds at the same time.

    Args:
        producer: used by all threads.
        lease_s: seconds a claim lasts.
        timeout_ms: deadline of one send.
        stopping: when it answers True no further send begins.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        lease_s: float,
        timeout_ms: int,
        stopping: Callable[[], bool] = lambda: False,
        breakers: TopicBreakers | None = None,
    ) -> None:
        self._producer = producer
        self._lease_s = lease_s
        self._timeout_ms = timeout_ms
        self._stopping = stopping
        self._breakers = breakers or TopicBreakers()
        self._singles = ThreadPoolExecutor(SINGLES, thread_name_prefix="single")

    def close(self) -> None:
        """End the helper threads."""
        self._singles.shutdown(wait=True)

    def run_round(self, *, lane: int, limit: int) -> int:
        """Claim up to `limit` rows, publish them, mark them; returns how many were claimed.

        Cost:
            One statement to claim, one for each kind of end; no transaction while publishing.
        """
        close_old_connections()
        pool_wait.acquire("sender")
        token = uuid.uuid4()
        claimed_at = time.monotonic()
        rows = outbox_rows.claim(
            lane=lane,
            limit=limit,
            lease_s=self._lease_s,
            without=self._breakers.blocked(),
            token=token,
        )
        if not rows:
            return 0
        faultpoint.hit("sender.after_claim")
        done = self.publish(rows, deadline=claimed_at + self._lease_s * _LEASE_SHARE)
        faultpoint.hit("sender.after_publish")
        self._mark(done, token)
        return len(rows)

    def publish(self, rows: Sequence[ClaimedRow], *, deadline: float) -> Round:
        """Send rows, in batches where the topic allows it; nothing begins after `deadline`.

        Args:
            rows: claimed ones.
            deadline: on the monotonic clock.
        """
        done = Round()
        messages = {row.id: _message(row) for row in rows}
        for topic, found in groupby(sorted(rows, key=lambda r: (r.topic, r.id)), lambda r: r.topic):
            of_topic = list(found)
            if _takes_batches(topic):
                for batch in _batches(of_topic):
                    self._send_batch(batch, messages, deadline, done)
            else:
                results = self._singles.map(
                    lambda row: self._send([messages[row.id]], deadline), of_topic
                )
                for row, result in zip(of_topic, results, strict=True):
                    self._judge([row], result, done)
        return done

    def _send_batch(
        self,
        batch: list[ClaimedRow],
        messages: dict[int, OutgoingMessage],
        deadline: float,
        done: Round,
    ) -> None:
        """Send a batch; one bad message in it makes all be sent alone."""
        result = self._send([messages[row.id] for row in batch], deadline)
        bad = result is not None and result.failure is FailureClass.BAD_MESSAGE
        if bad and len(batch) > 1:
            for row in batch:
                self._judge([row], self._send([messages[row.id]], deadline), done)
        else:
            self._judge(batch, result, done)

    def _send(self, messages: list[OutgoingMessage], deadline: float) -> SendResult | None:
        """Send once; None when it was not even begun."""
        topic = messages[0].topic
        started = time.monotonic()
        if started > deadline or self._stopping() or not self._breakers.permit(topic):
            return None
        try:
            result = self._producer.send(messages, timeout_ms=self._timeout_ms)
        except Exception as error:
            log.exception("send_crashed", topic=topic, messages=len(messages))
            result = SendResult(outcome=SendOutcome.UNKNOWN, code=type(error).__name__)
        record_send(messages, result, seconds=time.monotonic() - started)
        if result.failure is FailureClass.BAD_MESSAGE:  # that says nothing about the topic
            self._breakers.probe_was_moot(topic)
        else:
            ok = result.outcome is SendOutcome.CONFIRMED
            self._breakers.record(topic, ok=ok, code=result.code)
        return result

    def _judge(self, rows: list[ClaimedRow], result: SendResult | None, done: Round) -> None:
        """Sort rows that shared one send by what comes next."""
        if result is None:
            done.later += [
                Later(row=row, delay_ms=0, error="NOT_TRIED", sent=False) for row in rows
            ]
            return
        match result.outcome:
            case SendOutcome.CONFIRMED:
                done.sent += rows
            case SendOutcome.UNKNOWN | SendOutcome.DEFINITE_FAILURE:
                for row in rows:
                    self._judge_failure(row, result, done)
            case _:
                assert_never(result.outcome)

    def _judge_failure(self, row: ClaimedRow, result: SendResult, done: Round) -> None:
        """A bad message is given up at once, any other after its attempts, if its topic works."""
        error = f"{result.outcome} {result.code} {result.detail}".strip()
        if result.failure is FailureClass.BAD_MESSAGE:
            done.poison.append(Poison(row=row, reason=f"SEND_{result.code}", error=error))
            return
        topic_fails = self._breakers.is_open(row.topic) and not row.replay_id
        if row.attempts >= row.max_attempts and not topic_fails:
            done.poison.append(Poison(row=row, reason="SEND_ATTEMPTS", error=error))
            return
        wait_s = backoff_s(row.attempts - 1, first_s=_RETRY_FIRST_S, cap_s=_RETRY_CAP_S)
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        done.later.append(
            Later(row=row, delay_ms=round(wait_s * jitter * 1000), error=error, sent=True)
        )

    def _mark(self, done: Round, token: uuid.UUID) -> None:
        """Write each kind of end; rows whose lease went to another sender are only counted."""
        close_old_connections()
        ours = 0
        if done.sent:
            ours += outbox_rows.mark_sent(done.sent, token=token)
        if done.later:
            ours += outbox_rows.mark_later(done.later, token=token)
        if done.poison:
            ours += outbox_rows.mark_poison(done.poison, token=token)
            for item in done.poison:
                metrics.QUARANTINED.labels("OUTBOX", item.reason).inc()
                log.error(
                    "message_given_up",
                    message_id=item.row.event_id,
                    topic=item.row.topic,
                    send_attempt=item.row.attempts,
                    reason=item.reason,
                )
        lost = len(done.sent) + len(done.later) + len(done.poison) - ours
        if lost:
            metrics.OUTBOX_LEASE_LOST.inc(lost)
            log.warning("lease_lost", rows=lost)


def _message(row: ClaimedRow) -> OutgoingMessage:
    """Build the message: the row's bytes, and properties of which only send_attempt changes."""
    return OutgoingMessage(
        topic=row.topic,
        message_id=row.event_id,
        body=row.payload.encode(),
        tag=row.tag,
        keys=tuple(row.keys.split()),
        properties={
            "schema_version": str(SCHEMA_VERSION),
            **row.properties,
            "message_id": row.event_id,
            "origin_topic": row.topic,
            "send_attempt": str(row.attempts),
        },
        deliver_at_ms=row.deliver_at_ms,
    )


def _takes_batches(topic: str) -> bool:
    try:
        return topic_spec(topic).type is TopicType.NORMAL
    except KeyError:
        return False  # the producer refuses it as a configuration failure


def _batches(rows: Sequence[ClaimedRow]) -> Iterator[list[ClaimedRow]]:
    """Cut rows of one topic into sends; suspects go alone, doubled ids never share a send."""
    batch: list[ClaimedRow] = []
    ids: set[str] = set()
    size = 0
    for row in rows:
        if row.attempts > _SUSPECT_AFTER:
            yield [row]
            continue
        length = len(row.payload.encode())
        if batch and (len(batch) == BATCH or size + length > BATCH_BYTES or row.event_id in ids):
            yield batch
            batch, ids, size = [], set(), 0
        batch.append(row)
        ids.add(row.event_id)
        size += length
    if batch:
        yield batch
