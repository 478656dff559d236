"""Who may try, as this process knows it: refreshed twice a second, asked without I/O."""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from inventory.admission_rules import EVERY_SALE, RulesSnapshot
from seckill.admission.purchase_tokens import TokenCheck, check_token

REFRESH_S: Final = 0.5
_OPEN: Final = TokenCheck("", "")
_NOT_READ: Final = "UNAVAILABLE"


class Rules:
    """Denied buyers and sales that need a token. Until the first read nobody gets anything new.

    Args:
        read_mark: reads a text that changes with the rules.
        read: reads the rules.
    """

    def __init__(
        self,
        *,
        read_mark: Callable[[], Awaitable[str]],
        read: Callable[[], Awaitable[RulesSnapshot]],
    ) -> None:
        self._read_mark = read_mark
        self._read = read
        self._known: RulesSnapshot | None = None

    async def refresh(self) -> None:
        """Read the rules when their mark has changed; what fails leaves them as they were."""
        if self._known is None or await self._read_mark() != self._known.mark:
            self._known = await self._read()

    def check(self, target: tuple[int, int], user_id: str, token: bytes | None) -> TokenCheck:
        """Return the token's request key, and why a buyer may reserve nothing new (or empty)."""
        activity_id, sku_id = target
        known = self._known
        if known is None or activity_id in known.token_sales:
            found = check_token(token, activity_id=activity_id, sku_id=sku_id, user_id=user_id)
        else:
            found = _OPEN
        if known is None:
            # Whether the sale needs tokens is unknown; a genuine one names its holder's request.
            return TokenCheck(found.key, _NOT_READ)
        if known.denied and _denies(known, activity_id, user_id):
            return TokenCheck(found.key, "DENIED")
        return found


def _denies(known: RulesSnapshot, activity_id: int, user_id: str) -> bool:
    for sale in (activity_id, EVERY_SALE):
        users = known.denied.get(sale)
        if users is not None and user_id in users and _lasts(users[user_id]):
            return True
    return False


def _lasts(end: datetime | None) -> bool:
    return end is None or end.timestamp() > time.time()
