"""Names of all Redis keys of the gate (pure). The hash tag `{activity}` keeps a sale on one shard.

Source: docs/protocol.md, section "Keys".
"""


def tag(activity_id: int) -> str:
    """Return the common prefix of an activity's keys, with its Cluster hash tag."""
    return f"seckill:{{{activity_id}}}"


def gate(activity_id: int, sku_id: int) -> str:
    """Hash: status, stopped, window, validity, limits, version, epoch, rebuild_run."""
    return f"{tag(activity_id)}:sku:{sku_id}:gate"


def stock(activity_id: int, sku_id: int) -> str:
    """Integer: units that may still be reserved, never below 0."""
    return f"{tag(activity_id)}:sku:{sku_id}:stock"


def buyers(activity_id: int, sku_id: int) -> str:
    """Hash: user → reservation that holds his units."""
    return f"{tag(activity_id)}:sku:{sku_id}:buyers"


def ops(activity_id: int, sku_id: int) -> str:
    """Hash: operation → units it took or gave in this epoch."""
    return f"{tag(activity_id)}:sku:{sku_id}:ops"


def tokens(activity_id: int, sku_id: int) -> str:
    """ZSET user → end in epoch ms: buyers with a valid purchase token."""
    return f"{tag(activity_id)}:sku:{sku_id}:tokens"


def request(activity_id: int, user_id: str, key: str) -> str:
    """Text of one idempotency key of one user: `request_id reservation fingerprint`.

    A user's id and his key may both hold ':'. The id's is written '%3A' ('%' is in no id), so that
    the first ':' ends the id: `shop` with `7:k` and `shop:7` with `k` are two keys.
    """
    return f"{tag(activity_id)}:request:{user_id.replace(':', '%3A')}:{key}"


def reservation(activity_id: int, reservation_id: str) -> str:
    """Hash of one reservation."""
    return f"{tag(activity_id)}:reservation:{reservation_id}"


def mq_pending(activity_id: int) -> str:
    """ZSET reservation → next_retry_at in epoch ms: not known to be stored by the broker."""
    return f"{tag(activity_id)}:reservation:mq_pending"


def open_reservations(activity_id: int) -> str:
    """ZSET reservation → valid_until in epoch ms: neither confirmed nor released yet."""
    return f"{tag(activity_id)}:reservation:open"


def mark(activity_id: int) -> str:
    """Integer: the moving mark that tells an older copy of Redis."""
    return f"{tag(activity_id)}:mark"


def answers(activity_id: int) -> str:
    """Hash: code of an answer → how many buyers got it, counted by admission for the monitor."""
    return f"{tag(activity_id)}:answers"


def events_channel(activity_id: int) -> str:
    """Pub/sub channel of an activity's reservation status changes, for SSE."""
    return f"{tag(activity_id)}:events"


EVENTS_PATTERN = "seckill:{*}:events"
"""Pattern of all activities' channels, for a process that follows every sale."""
