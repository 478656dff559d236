"""Records and answer codes of the gate (pure). Each enum mirrors the codes of one Lua file."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


@dataclass(frozen=True, kw_only=True, slots=True)
class ReserveRequest:
    """One buyer's wish, all ids drawn before the Lua call and never changed after.

    `fingerprint` is a short hash of SKU and body: the same key with another one is a conflict.
    """

    sku_id: int
    user_id: str
    quantity: int
    idempotency_key: str
    fingerprint: str
    request_id: str
    reservation_id: str
    order_id: str
    message_id: str
    traceparent: str


class ReserveCode(IntEnum):
    """Answers of reserve.lua."""

    RESERVED = 1
    SOLD_OUT = 2
    ALREADY_RESERVED = 3
    REQUEST_REPLAYED = 4
    REQUEST_CONFLICT = 5
    RESERVATION_ENDED = 6
    NOT_STARTED = 7
    ENDED = 8
    CLOSED = 9
    LIMIT_EXCEEDED = 10
    BUSY = 11
    GATE_LOST = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """A reservation as its Redis hash tells it. Instants are epoch milliseconds of Redis TIME."""

    activity_id: int
    sku_id: int
    reservation_id: str
    request_id: str
    order_id: str
    message_id: str
    user_id: str
    quantity: int
    status: str
    mq_status: str
    created_at_ms: int
    valid_until_ms: int
    traceparent: str
    send_attempt: int = 0
    reject_reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReserveReply:
    """Answer for one request of a batch.

    `reservation` is the caller's own for RESERVED, the first one for ALREADY_RESERVED,
    REQUEST_REPLAYED and RESERVATION_ENDED, None otherwise. When the hash of a named reservation is
    gone, only its id is known and `status` is "": PostgreSQL has the rest. `stock_left` and
    `gate_version` describe the SKU's gate right after this request (-1 when the gate is missing).
    """

    code: ReserveCode
    reservation: Reservation | None
    stock_left: int
    gate_version: int


class MarkCode(IntEnum):
    """Answers of mark_sent.lua and reschedule.lua, one for each reservation."""

    OK = 1
    NOT_APPLICABLE = 2  # not RESERVED + MQ_PENDING any more, or the lease is another's
    MISSING = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimReply:
    """Answer of claim_due.lua: what the caller holds the lease of, and how many ids had no hash."""

    reservations: list[Reservation]
    dropped: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveBackItem:
    """One reservation whose send failed for certain."""

    sku_id: int
    reservation_id: str
    user_id: str
    quantity: int
    idempotency_key: str


class GiveBackCode(IntEnum):
    """Answers of give_back.lua, the compare-and-set of a definite send failure."""

    OK = 1
    REFUSED = 2  # RESERVED or CONFIRMED still: the scanner or the broker owns it
    RELEASED = 3
    MISSING = 4


class ConfirmCode(IntEnum):
    """Answers of confirm.lua."""

    OK = 1
    ALREADY = 2  # CONFIRMED before
    NOT_APPLICABLE = 3  # RELEASED
    MISSING = 4  # the hash is gone; both ZSETs were cleared of the id
    RETRY = 5  # the gate is REBUILDING


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseItem:
    """One ended reservation, all from PostgreSQL. `restock` false frees the buyer only."""

    sku_id: int
    reservation_id: str
    user_id: str
    quantity: int
    restock: bool
    reason: str


class ReleaseCode(IntEnum):
    """Answers of release.lua. OK also when there was nothing to give back."""

    OK = 1
    RETRY = 2  # the gate is lost or REBUILDING


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseReply:
    """Answer of release.lua; `given_back` units went back to the gate (0 when none did)."""

    code: ReleaseCode
    given_back: int


class AdjustCode(IntEnum):
    """Answers of adjust_stock.lua."""

    OK = 1
    REPEATED = 2  # this operation was applied in this epoch; `units` says with what
    WRONG_EPOCH = 3
    RETRY = 4  # REBUILDING
    MISSING = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class AdjustReply:
    """Answer of adjust_stock.lua; `units` is what was really given (+) or taken (-)."""

    code: AdjustCode
    units: int


class AdoptCode(IntEnum):
    """Answers of adopt.lua."""

    OK = 1
    REPEATED = 2  # this order took its units in this epoch
    TAKEN = 3  # the buyer holds another reservation
    SHORT = 4  # the gate has fewer units
    RETRY = 5  # the gate is lost, REBUILDING, or of another epoch
    HELD = 6  # the buyer holds this very reservation: nothing to do


class GateWriteCode(IntEnum):
    """Answers of load_gate, open_gate, edit_gate, close_gate and the scripts of rebuild."""

    OK = 1
    MISSING = 2
    STALE = 3  # an older version, or a newer rebuild run began
    REFUSED = 4  # the gate's state does not allow it
    REBUILDING = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class GateConfig:
    """What `open_gate` and `edit_gate` write. Instants are epoch ms."""

    starts_ms: int
    ends_ms: int
    validity_ms: int
    limit_per_user: int
    max_open: int
    max_pending: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GateLoad:
    """What warm-up writes to one gate."""

    sku_id: int
    units: int
    epoch: int
    config: GateConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class GateRebuild:
    """What the last script of a rebuild writes to one gate: what PostgreSQL's transaction found."""

    sku_id: int
    units: int
    epoch: int
    config: GateConfig
    buyers: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateState:
    """A gate as Redis holds it. `stock` is -1 when only the hash is there (rebuild of a loss)."""

    activity_id: int
    sku_id: int
    status: str
    stopped: bool
    config: GateConfig
    version: int
    epoch: int
    rebuild_run: int
    stock: int
    warm: bool  # loaded by warm-up and never opened since
    rebuild_seen: int = 0  # newest rebuild run that was ever here


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingStats:
    """How much waits at the gate. `oldest_due_ms`: lowest score of mq_pending, 0 when empty."""

    pending: int
    oldest_due_ms: int
    open: int
    redis_now_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SkuTerms:
    """What the order transaction freezes into an order (read from PostgreSQL)."""

    activity_id: int
    sku_id: int
    price_cents: int
    currency: str
    pay_window_s: int
    voided: bool


class PublicStatus(StrEnum):
    """Status of a reservation as buyers see it."""

    QUEUED = "QUEUED"
    PENDING = "PENDING"
    DELAYED = "DELAYED"
    ORDERED = "ORDERED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    CANCELED = "CANCELED"
