"""Buyers' tokens: who is asking. JWT, HS256 of our own or the keys (JWKS) of an identity provider.

A verified token is remembered until it expires, so that a buyer's second request costs a look-up.
Only successes are remembered, and only so many; a token has one spelling, so that nobody fills the
memory with spellings of his own.
"""

import asyncio
import hashlib
import hmac
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import jwt
import orjson
from django.conf import settings

USER_ID: Final = re.compile(r"[A-Za-z0-9_.:@-]{1,64}")
_CACHE_LIMIT: Final = 20_000  # 6 MB; the next look at a forgotten one costs 4 µs
_LONGEST: Final = 4_096
_JWKS_PAUSE_S: Final = 10.0
# What PyJWT writes for HS256: only such tokens take the short way in `_verify_plain`.
_HS256_HEADER: Final = b"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
_PLAIN_CLAIMS: Final = frozenset({"sub", "exp", "iat", "use"})


class InvalidToken(Exception):
    """No token, or one that proves nothing. The text is for logs, never for the client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenPolicy:
    """What a token must prove. Exactly one of `secret` and `jwks_url` is set."""

    secret: str
    jwks_url: str
    algorithm: str
    issuer: str
    audience: str


def policy() -> TokenPolicy:
    """Return the policy of the settings."""
    return TokenPolicy(
        secret=settings.SECKILL_JWT_SECRET,
        jwks_url=settings.SECKILL_JWT_JWKS_URL,
        algorithm=settings.SECKILL_JWT_ALGORITHM,
        issuer=settings.SECKILL_JWT_ISSUER,
        audience=settings.SECKILL_JWT_AUDIENCE,
    )


class TokenVerifier:
    """Verifies access tokens and remembers them until they expire.

    Args:
        policy: what a token must prove.
        limit: verified tokens to remember; the oldest tenth is dropped when it is reached.
    """

    def __init__(self, policy: TokenPolicy, *, limit: int = _CACHE_LIMIT) -> None:
        self._policy = policy
        self._limit = limit
        # By the token's digest: 20 000 tokens of 4 KB each would be 80 MB.
        self._verified: dict[bytes, tuple[str, float]] = {}
        self._jwks = (
            jwt.PyJWKClient(policy.jwks_url, cache_jwk_set=True, lifespan=300, timeout=3)
            if policy.jwks_url
            else None
        )
        self._jwks_read_at = 0.0
        # The short way knows no issuer or audience: with them PyJWT does it all.
        plain = self._jwks is None and policy.algorithm == "HS256"
        self._plain_key = (
            policy.secret.encode() if plain and not (policy.issuer or policy.audience) else None
        )

    def known(self, token: bytes) -> str | None:
        """Return the user of a token that was verified before and has not expired."""
        if len(token) > _LONGEST:
            return None
        digest = hashlib.sha256(token).digest()
        entry = self._verified.get(digest)
        if entry is None:
            return None
        if entry[1] > time.time():
            return entry[0]
        self._verified.pop(digest, None)  # another thread may have been quicker
        return None

    def verify(self, token: bytes) -> str:
        """Return the user id of a valid access token.

        Blocks on the network only when the JWKS must be read. Cost: 4 µs for our own tokens,
        50 µs through PyJWT, 1 µs when known.

        Raises:
            InvalidToken: bad signature, expired, for another audience, a refresh token, no user.
        """
        user_id = self.known(token)
        if user_id is not None:
            return user_id
        if len(token) > _LONGEST:
            raise InvalidToken("too long")
        claims = self._verify_plain(token)
        if claims is None:
            _require_one_spelling(token)
            claims = self.claims(token)
        return self._accept(token, claims)

    async def verify_async(self, token: bytes) -> str:
        """`verify` for the event loop: reads a JWKS in a thread."""
        if self._jwks is None:
            return self.verify(token)
        known = self.known(token)
        return known if known is not None else await asyncio.to_thread(self.verify, token)

    def claims(self, token: bytes | str) -> dict[str, Any]:
        """Verify signature, expiry, issuer and audience with PyJWT and return the claims.

        Raises:
            InvalidToken: anything is wrong with the token.
        """
        p = self._policy
        try:
            key: Any = p.secret if self._jwks is None else self._signing_key(token)
            return jwt.decode(
                token,
                key,
                algorithms=[p.algorithm],
                issuer=p.issuer or None,
                audience=p.audience or None,
                options={"require": ["exp", "sub"], "verify_aud": bool(p.audience)},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise InvalidToken(type(error).__name__) from None

    def _verify_plain(self, token: bytes) -> dict[str, Any] | None:
        """Verify a token of the very form that we issue; None when it is of another form."""
        if self._plain_key is None or not token.startswith(_HS256_HEADER):
            return None
        signed, _, signature = token.rpartition(b".")
        # Encoded, not decoded: Python's decoder drops foreign characters and unused bits.
        expected = _encode(hmac.digest(self._plain_key, signed, "sha256"))
        if not hmac.compare_digest(signature, expected):
            raise InvalidToken("signature")
        try:
            claims = orjson.loads(urlsafe_b64decode(signed[len(_HS256_HEADER) :] + b"=="))
        except ValueError:
            raise InvalidToken("form") from None
        if type(claims) is not dict or not claims.keys() <= _PLAIN_CLAIMS:
            return None
        expires = claims.get("exp")
        if type(expires) is not int:
            return None
        if expires <= time.time():
            raise InvalidToken("expired")
        return claims

    def _accept(self, token: bytes, claims: dict[str, Any]) -> str:
        user_id = claims.get("sub")
        if not isinstance(user_id, str) or not USER_ID.fullmatch(user_id):
            raise InvalidToken("sub")
        if claims.get("use") == "refresh":
            raise InvalidToken("a refresh token is no access token")
        if len(self._verified) >= self._limit:
            for old in list(self._verified)[: max(1, self._limit // 10)]:
                self._verified.pop(old, None)  # another thread may drop the same ones
        self._verified[hashlib.sha256(token).digest()] = (user_id, float(claims["exp"]))
        return user_id

    def _signing_key(self, token: bytes | str) -> Any:
        """Find the key by its id; unknown ids read the JWKS again at most every 10 s."""
        assert self._jwks is not None  # noqa: S101  (type narrowing; the caller checked)
        text = token if isinstance(token, str) else token.decode("ascii")
        kid = jwt.get_unverified_header(text).get("kid")
        found = self._jwks.match_kid(self._jwks.get_signing_keys(), str(kid))
        now = time.monotonic()
        if found is None and now - self._jwks_read_at > _JWKS_PAUSE_S:
            self._jwks_read_at = now
            found = self._jwks.match_kid(self._jwks.get_signing_keys(refresh=True), str(kid))
        if found is None:
            raise InvalidToken("unknown key id")
        return found.key


def _encode(raw: bytes) -> bytes:
    return urlsafe_b64encode(raw).rstrip(b"=")


def _require_one_spelling(token: bytes) -> None:
    """Refuse a signature that PyJWT would decode, but that no issuer writes (RFC 7515, 2).

    Header and claims are signed as they are written; the signature itself is not.
    """
    signature = token.rpartition(b".")[2]
    try:
        raw = urlsafe_b64decode(signature + b"==")
    except ValueError:
        raise InvalidToken("form") from None
    if _encode(raw) != signature:
        raise InvalidToken("spelling")


@lru_cache(maxsize=4)
def _verifier(policy: TokenPolicy) -> TokenVerifier:
    return TokenVerifier(policy)


def verifier() -> TokenVerifier:
    """Return the process-wide verifier of the current settings."""
    return _verifier(policy())


def issue(user_id: str, *, use: str, lifetime_s: int) -> str:
    """Sign a token of our own. `use` is `access` or `refresh`.

    Raises:
        InvalidToken: identities come from a JWKS here, or the user id is not allowed.
    """
    p = policy()
    if p.jwks_url or not p.algorithm.startswith("HS"):
        raise InvalidToken("tokens come from the identity provider")
    if not USER_ID.fullmatch(user_id):
        raise InvalidToken("sub")
    now = int(time.time())
    claims: dict[str, Any] = {"sub": user_id, "iat": now, "exp": now + lifetime_s, "use": use}
    if p.issuer:
        claims["iss"] = p.issuer
    if p.audience:
        claims["aud"] = p.audience
    return jwt.encode(claims, p.secret, algorithm=p.algorithm)
