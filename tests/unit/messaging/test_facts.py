"""Lenient reading of bodies that nobody could handle: nothing raises, nothing wrong is stored."""

from datetime import UTC, datetime

import pytest

from messaging.facts import NO_FACTS, BodyFacts, printable, read_facts

RSV = "rsv_01JZZZZZZZZZZZZZZZZZZZZZZZ"


def test_a_whole_body_gives_all_facts() -> None:
    body = (
        b'{"schema_version": 99, "reservation_id": "' + RSV.encode() + b'", "activity_id": 7,'
        b' "sku_id": 8, "user_id": "u1", "quantity": 2,'
        b' "reservation_valid_until": "2026-03-01T10:00:00.250Z"}'
    )

    assert read_facts(body) == BodyFacts(
        reservation_id=RSV,
        activity_id=7,
        sku_id=8,
        user_id="u1",
        quantity=2,
        valid_until=datetime(2026, 3, 1, 10, 0, 0, 250_000, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"not json",
        b"[1]",
        b"null",
        b'{"reservation_id": 5, "activity_id": "7", "sku_id": true, "user_id": "a b"}',
        b'{"quantity": 0, "activity_id": -1, "sku_id": 9223372036854775808}',
        b'{"quantity": 1.5, "activity_id": NaN}',
        b'{"quantity": 2147483648, "reservation_valid_until": "2026-13-01T10:00:00.250Z"}',
        b'{"reservation_id": "rsv_01JZZZZZZZZZZZZZZZZZZZZZZZ\\n", "user_id": "a\\u0000"}',
        b"[" * 100_000,
    ],
)
def test_whatever_is_not_plainly_right_is_none(body: bytes) -> None:
    assert read_facts(body) == NO_FACTS


def test_the_keys_help_when_the_body_has_no_reservation() -> None:
    assert read_facts(b"{", ("ord_1", RSV)).reservation_id == RSV


def test_printable_text_has_neither_nul_nor_lone_surrogates() -> None:
    assert printable("a\x00b\ud800c é") == "ab?c é"
