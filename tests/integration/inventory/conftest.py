"""A sale in PostgreSQL and at its gate, made through the operators' services."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.utils import timezone

from inventory import operations, verbs
from inventory.activities import NewSku, create_activity
from inventory.contracts import GateState, ReserveReply
from inventory.errors import GateUnavailable
from inventory.gate import Gate, gate
from inventory.models import Activity, GateOperation, Sku, Stock, StockLedger
from tests.fixtures.gate import wish


@dataclass
class Sale:
    activity_id: int
    sku_ids: list[int]
    client: redis.Redis

    @property
    def sku_id(self) -> int:
        return self.sku_ids[0]

    @property
    def row(self) -> Activity:
        return Activity.objects.get(pk=self.activity_id)

    @property
    def final(self) -> Stock:
        return Stock.objects.get(pk=self.sku_id)

    def state(self, sku_id: int | None = None) -> GateState | None:
        return gate().run(
            verbs.gate_state(activity_id=self.activity_id, sku_id=sku_id or self.sku_id)
        )

    def operation(self, operation_id: str) -> GateOperation:
        return GateOperation.objects.get(pk=operation_id)

    def buy(self, user: str) -> ReserveReply:
        (reply,) = gate().run(
            verbs.reserve(
                activity_id=self.activity_id,
                requests=[wish(user, sku_id=self.sku_id)],
                lease_owner="web",
                lease_ms=60_000,
            )
        )
        return reply

    def ledger(self) -> list[tuple[str, int]]:
        lines = StockLedger.objects.filter(activity_id=self.activity_id).order_by("id")
        return [(line.kind, line.delta) for line in lines]

    def assert_conserved(self) -> None:
        """Final stock = its ledger, and (nobody buys here) the gate promises just as much."""
        for sku_id in self.sku_ids:
            row = Stock.objects.get(pk=sku_id)
            moved = sum(StockLedger.objects.filter(sku_id=sku_id).values_list("delta", flat=True))
            assert row.available == moved == row.initial + row.topped_up - row.cut
            state = self.state(sku_id)
            assert state is not None
            assert state.stock == row.available


@pytest.fixture
def new_draft(db: None, redis_client: redis.Redis) -> Callable[..., Sale]:
    """Make a sale in DRAFT: `new_draft(units=10, skus=1, **activity)`."""

    def make(*, units: int = 10, skus: int = 1, **changes: Any) -> Sale:
        now = timezone.now()
        values: dict[str, Any] = {
            "name": "a sale",
            "starts_at": now - timedelta(minutes=1),
            "ends_at": now + timedelta(hours=1),
            "skus": [
                NewSku(name=f"thing {n}", price_cents=4_900, initial_units=units)
                for n in range(skus)
            ],
        }
        activity_id = create_activity(**(values | changes))
        sku_ids = list(
            Sku.objects.filter(activity_id=activity_id).order_by("pk").values_list("pk", flat=True)
        )
        return Sale(activity_id=activity_id, sku_ids=sku_ids, client=redis_client)

    return make


@pytest.fixture
def new_sale(new_draft: Callable[..., Sale]) -> Callable[..., Sale]:
    """Make a sale that is OPEN."""

    def make(**changes: Any) -> Sale:
        sale = new_draft(**changes)
        operations.warm_up(activity_id=sale.activity_id)
        operations.request_open(activity_id=sale.activity_id, reason="go")
        return sale

    return make


@pytest.fixture
def gate_down(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """`with gate_down():` the gate cannot be reached."""

    @contextmanager
    def down() -> Iterator[None]:
        def fail(self: Gate, call: object) -> None:
            raise GateUnavailable("down")

        with monkeypatch.context() as patch:
            patch.setattr(Gate, "run", fail)
            yield

    return down
