"""Buyers' tokens (HS256), made before the clock starts: about 4 µs each."""

import base64
import hashlib
import hmac
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_HEADER: Final = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")


def buyer_tokens(
    user_ids: Sequence[str],
    *,
    secret: str,
    lifetime_s: int = 3600,
    issuer: str = "",
    audience: str = "",
) -> Iterator[str]:
    """Yield one access token for each user id."""
    now = int(time.time())
    claims: dict[str, object] = {"iat": now, "exp": now + lifetime_s, "use": "access"}
    if issuer:
        claims["iss"] = issuer
    if audience:
        claims["aud"] = audience
    encode = msgspec.json.Encoder().encode
    keyed = hmac.new(secret.encode(), _HEADER + b".", hashlib.sha256)
    for user_id in user_ids:
        payload = base64.urlsafe_b64encode(encode({"sub": user_id, **claims})).rstrip(b"=")
        signed = keyed.copy()
        signed.update(payload)
        signature = base64.urlsafe_b64encode(signed.digest()).rstrip(b"=")
        yield b".".join((_HEADER, payload, signature)).decode()
