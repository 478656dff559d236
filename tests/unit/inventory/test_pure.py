"""Keys, codes and states: what can be checked without a server."""

import dataclasses
import re

import pytest

from inventory import contracts, keys, verbs
from inventory.contracts import (
    AdjustCode,
    ConfirmCode,
    GateWriteCode,
    GiveBackCode,
    MarkCode,
    ReleaseCode,
    ReleaseItem,
    ReserveCode,
)
from inventory.lua import SCRIPTS
from inventory.models import GateOperation
from inventory.operation_driver import _STEPS
from inventory.operation_forms import IN_FLIGHT
from inventory.operation_requests import PERMISSIONS
from inventory.states import ACTIVITY_ALLOWED, OPERATION_ALLOWED, OperationKind
from seckill.admission.tokens import USER_ID
from tests.fixtures.gate import wish


def test_all_keys_of_a_sale_share_one_hash_tag() -> None:
    made = [
        keys.gate(42, 7),
        keys.stock(42, 7),
        keys.buyers(42, 7),
        keys.ops(42, 7),
        keys.request(42, "ann{7}", "k}{"),
        keys.reservation(42, "rsv_1"),
        keys.mq_pending(42),
        keys.open_reservations(42),
        keys.mark(42),
        keys.events_channel(42),
    ]
    assert len(set(made)) == len(made)
    # Cluster hashes what stands between the first { and the next }.
    assert {re.search(r"\{(.*?)\}", key)[1] for key in made} == {"42"}


def test_ids_and_keys_that_read_alike_make_two_keys() -> None:
    assert USER_ID.fullmatch("a%3Ab") is None  # '%' is free to stand for something
    pairs = [("shop", "7:k"), ("shop:7", "k"), ("shop:7:k", ""), ("shop", "7%3Ak")]
    assert len({keys.request(42, user, key) for user, key in pairs}) == len(pairs)
    assert keys.request(42, "ann@x", "k:1") == "seckill:{42}:request:ann@x:k:1"


@pytest.mark.parametrize(
    ("scripts", "codes"),
    [
        (["reserve"], ReserveCode),
        (["mark_sent", "reschedule"], MarkCode),
        (["give_back"], GiveBackCode),
        (["confirm"], ConfirmCode),
        (["release"], ReleaseCode),
        (["adjust_stock"], AdjustCode),
        (
            [
                "load_gate",
                "open_gate",
                "close_gate",
                "edit_gate",
                "close_for_rebuild",
                "begin_rebuild",
                "finish_rebuild",
            ],
            GateWriteCode,
        ),
    ],
)
def test_the_codes_of_each_script_are_those_of_its_enum(scripts, codes) -> None:
    for name in scripts:
        found: dict[str, int] = {}
        for line in SCRIPTS[name].source.splitlines():
            match = re.match(r"local ([A-Z_, ]+) = ([\d, ]+)$", line)
            if match:
                values = map(int, match[2].split(","))
                found |= dict(zip(match[1].replace(" ", "").split(","), values, strict=True))
        found.pop("UNKNOWN_HASH", None)
        assert found, name
        assert {code: codes[code].value for code in found} == found, name


def test_numbers_of_skus_follow_their_first_use() -> None:
    items = [
        ReleaseItem(
            sku_id=sku,
            reservation_id=f"rsv_{n}",
            user_id="u",
            quantity=1,
            restock=bool(n % 2),
            reason="USER",
        )
        for n, sku in enumerate([9, 7, 9])
    ]
    call = verbs.release(activity_id=1, items=items)
    assert call.args[:2] == (2, 3)
    assert [call.args[2 + 6 * n] for n in range(3)] == [1, 2, 1]
    assert call.keys[2] == keys.gate(1, 9)


def test_a_call_is_built_without_io_and_never_changed() -> None:
    call = verbs.reserve(activity_id=1, requests=[wish("ann")], lease_owner="me", lease_ms=1_000)
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.script = "release"  # type: ignore[misc]


def test_every_kind_of_operation_is_complete() -> None:
    kinds = set(OperationKind)
    assert set(PERMISSIONS) == set(_STEPS) == set(IN_FLIGHT) == kinds
    codes = {f"inventory.{code}" for code, _ in GateOperation._meta.permissions}
    assert set(PERMISSIONS.values()) == codes


@pytest.mark.parametrize("allowed", [ACTIVITY_ALLOWED, OPERATION_ALLOWED])
def test_every_state_is_in_its_chart(allowed) -> None:
    states = set(type(next(iter(allowed))))
    assert set(allowed) == states
    assert all(targets <= states for targets in allowed.values())


def test_records_are_keyword_only_and_frozen() -> None:
    records = [
        cls
        for cls in vars(contracts).values()
        if isinstance(cls, type) and dataclasses.is_dataclass(cls)
    ]
    assert len(records) > 10
    for cls in records:
        assert cls.__dataclass_params__.frozen, cls
        assert all(field.kw_only for field in dataclasses.fields(cls)), cls
