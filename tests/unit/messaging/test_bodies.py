"""Wire contracts: a golden file per contract and version; everything else is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.contracts import Reservation
from messaging.envelope import StrictDecoder, format_instant, parse_instant, to_epoch_ms
from messaging.errors import PermanentError
from orders.contracts import (
    cancel_decoder,
    create_order_body,
    create_order_decoder,
    encode,
    order_event_decoder,
    release_decoder,
)

GOLDEN: Final = Path(__file__).resolve().parents[2] / "golden"
ULID: Final = "01JZ5Y7K3M9QXA2B4C6D8EFGHJ"
DECODERS: Final[dict[str, StrictDecoder[Any]]] = {
    "create_order_v1": create_order_decoder,
    "cancel_if_unpaid_v1": cancel_decoder,
    "release_reservation_v1": release_decoder,
    "order_event_v1": order_event_decoder,
}
RESERVATION: Final = Reservation(
    activity_id=10001,
    sku_id=20001,
    reservation_id=f"rsv_{ULID}",
    request_id=f"req_{ULID}",
    order_id=f"ord_{ULID}",
    message_id=f"evt_{ULID}",
    user_id="user:42@example.org",
    quantity=2,
    status="RESERVED",
    mq_status="MQ_PENDING",
    created_at_ms=1_767_225_600_007,
    valid_until_ms=1_767_225_900_007,
    traceparent=f"00-{'ab' * 16}-{'cd' * 8}-01",
)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().strip()


def changed(name: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    body = json.loads(golden(name))
    change(body)
    return json.dumps(body).encode()


@pytest.mark.parametrize("name", DECODERS)
def test_a_golden_body_decodes_and_encodes_to_the_same_bytes(name: str) -> None:
    """A stored message of this version must be readable, and re-sendable, for ever."""
    body = golden(name)

    assert encode(DECODERS[name].decode(body)) == body


def test_every_contract_has_its_golden_file_and_every_file_its_contract() -> None:
    assert {path.stem for path in GOLDEN.glob("*_v*.json")} == set(DECODERS)


def test_the_creation_body_is_built_from_the_reservation_byte_for_byte() -> None:
    """Admission's first send and every resend of the scanner are the same bytes."""
    first = create_order_body(RESERVATION)
    later = create_order_body(replace(RESERVATION, send_attempt=7, mq_status="MQ_SENT"))

    assert first == later == golden("create_order_v1")


@pytest.mark.parametrize("name", DECODERS)
def test_another_schema_version_is_unsupported_whatever_else_is_in_it(name: str) -> None:
    newer = changed(name, lambda body: body.update(schema_version=2))
    unlike = b'{"schema_version": 3, "all": "different"}'

    for body in (newer, unlike):
        with pytest.raises(PermanentError) as refused:
            DECODERS[name].decode(body)
        assert refused.value.reason == "SCHEMA_UNSUPPORTED"


@pytest.mark.parametrize("name", DECODERS)
def test_every_missing_field_and_every_wrong_type_is_refused(name: str) -> None:
    fields = json.loads(golden(name))
    bodies = [changed(name, lambda body, f=field: body.pop(f)) for field in fields]
    bodies += [changed(name, lambda body, f=field: body.update({f: None})) for field in fields]
    bodies += [changed(name, lambda body, f=field: body.update({f: [1]})) for field in fields]

    for body in bodies:
        with pytest.raises(PermanentError) as refused:
            DECODERS[name].decode(body)
        assert refused.value.reason == "INVALID_EVENT"


MALFORMED: Final = {
    "empty": b"",
    "not json": b"hello",
    "half": b'{"schema_version": 1,',
    "not utf-8": b'{"schema_version": 1, "user_id": "\xff\xfe"}',
    "NaN": b'{"schema_version": NaN}',
    "Infinity": b'{"schema_version": 1, "quantity": Infinity}',
    "two bodies": b"{}{}",
    "deep": b"[" * 200_000,
    "deep in a field": b'{"schema_version": 1, "x": ' + b'{"a":' * 100_000,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("name", DECODERS)
def test_what_is_no_json_is_refused_never_a_crash(name: str, body: bytes) -> None:
    with pytest.raises(PermanentError) as refused:
        DECODERS[name].decode(body)
    assert refused.value.reason in {"INVALID_JSON", "INVALID_EVENT"}


@pytest.mark.parametrize("body", [b"null", b"[]", b'"text"', b"1", b"true"])
def test_json_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(PermanentError) as refused:
        create_order_decoder.decode(body)
    assert refused.value.reason == "INVALID_EVENT"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantity", 0),
        ("quantity", -1),
        ("quantity", 1.5),
        ("quantity", "1"),
        ("quantity", True),
        ("quantity", 2**31),
        ("quantity", 10**30),
        ("activity_id", 0),
        ("activity_id", 2**63),
        ("retry_count", -1),
        ("message_id", f"msg_{ULID}"),
        ("message_id", "evt_123"),
        ("message_id", f"evt_{ULID.lower()}"),
        ("message_id", f"evt_{ULID}\n"),
        ("message_id", f" evt_{ULID}"),
        ("message_id", "evt_81JZ5Y7K3M9QXA2B4C6D8EFGHJ"),
        ("reservation_id", f"ord_{ULID}"),
        ("order_id", f"rsv_{ULID}"),
        ("request_id", ULID),
        ("user_id", ""),
        ("user_id", "a" * 65),
        ("user_id", "a b"),
        ("user_id", "x'; DROP TABLE orders_order;--"),
        ("user_id", "a\x00"),
        ("user_id", "a\n"),
        ("created_at", "2026-01-01 00:00:00"),
        ("created_at", "2026-01-01T00:00:00Z"),
        ("created_at", "2026-01-01T00:00:00.000+08:00"),
        ("event_type", "ORDER_CREATED_TWICE"),
        ("trace", {}),
        ("trace", {"trace_id": "a", "span_id": "b", "traceparent": "x"}),
    ],
)
def test_a_value_against_the_rules_is_refused(field: str, value: object) -> None:
    with pytest.raises(PermanentError) as refused:
        create_order_decoder.decode(changed("create_order_v1", lambda b: b.update({field: value})))
    assert refused.value.reason == "INVALID_EVENT"


def test_an_impossible_instant_is_refused() -> None:
    """It has the right form: only the calendar says no."""
    for instant in ("2026-02-30T00:00:00.000Z", "2026-13-01T00:00:00.000Z"):
        with pytest.raises(PermanentError):
            create_order_decoder.decode(
                changed("create_order_v1", lambda b, i=instant: b.update(reservation_valid_until=i))
            )


def test_a_large_quantity_is_a_matter_for_business_not_for_decoding() -> None:
    body = changed("create_order_v1", lambda b: b.update(quantity=10**9))

    assert create_order_decoder.decode(body).quantity == 10**9


def test_fields_of_later_versions_are_allowed_beside_ours() -> None:
    body = changed("create_order_v1", lambda b: b.update(gift_wrap=True))

    assert create_order_decoder.decode(body).order_id == f"ord_{ULID}"


def test_a_huge_body_is_decoded_or_refused_in_no_time() -> None:
    padded = changed("create_order_v1", lambda b: b.update(padding="x" * 5_000_000))

    assert create_order_decoder.decode(padded).quantity == 2


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_crash_a_decoder(body: bytes) -> None:
    for decoder in DECODERS.values():
        with pytest.raises(PermanentError):
            decoder.decode(body)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(json.loads(golden("create_order_v1")))),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)
def test_any_value_in_any_field_is_accepted_as_it_is_or_refused(field: str, value: object) -> None:
    body = changed("create_order_v1", lambda b: b.update({field: value}))
    try:
        message = create_order_decoder.decode(body)
    except PermanentError:
        return
    assert msgspec.to_builtins(message)[field] == value or field == "trace"


@given(st.integers(min_value=0, max_value=4_102_444_800_000))
def test_instants_go_there_and_back(epoch_ms: int) -> None:
    assert to_epoch_ms(parse_instant(format_instant(epoch_ms))) == epoch_ms
