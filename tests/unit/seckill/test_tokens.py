"""Tokens: both ways of verifying agree, the cache forgets, a JWKS works."""

import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from seckill.admission.tokens import InvalidToken, TokenPolicy, TokenVerifier

KEY = "0123456789abcdef0123456789abcdef" * 2  # long enough for HS512
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def verifier(**changes: Any) -> TokenVerifier:
    values = {"secret": KEY, "jwks_url": "", "algorithm": "HS256", "issuer": "", "audience": ""}
    limit = changes.pop("limit", 100)
    return TokenVerifier(TokenPolicy(**(values | changes)), limit=limit)


def token(key: str = KEY, algorithm: str = "HS256", **claims: Any) -> bytes:
    values = {"sub": "alice", "exp": int(time.time()) + 60} | claims
    return jwt.encode(values, key, algorithm=algorithm).encode()


@pytest.mark.parametrize(
    "claims",
    [{}, {"iat": 1}, {"use": "access"}, {"nbf": 1}, {"x": 1}, {"exp": time.time() + 3600.5}],
)
def test_good_tokens(claims: dict[str, Any]) -> None:
    assert verifier().verify(token(**claims)) == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"exp": None},
        {"exp": True},
        {"nbf": int(time.time()) + 3600},
        {"use": "refresh"},
        {"sub": ""},
        {"sub": "a" * 65},
        {"sub": 7},
        {"sub": "a\n"},
    ],
)
def test_bad_claims(claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        verifier().verify(token(**claims))


def test_short_way_refuses_what_pyjwt_refuses() -> None:
    """Every byte of a token changed: nothing but the original is accepted by either way."""
    good = token()
    checked = verifier()
    for position in range(len(good)):
        changed = bytearray(good)
        changed[position] ^= 1
        accepted = []
        for way in (checked.verify, checked.claims):
            try:
                way(bytes(changed))
                accepted.append(way)
            except InvalidToken:
                pass
        # The last base64 character has unused bits, and PyJWT alone decodes it leniently.
        assert not accepted or (accepted, position) == ([checked.claims], len(good) - 1)


def spellings(good: bytes) -> list[bytes]:
    """Other bytes that a lenient decoder reads as the same token."""
    head, _, signature = good.rpartition(b".")
    changed = [signature + end for end in (b"=", b"==", b"\n", b"!", b"*" * 9)]
    changed += [signature[:5] + foreign + signature[5:] for foreign in (b"!", b" ", b"\xe4")]
    last = ALPHABET.index(signature[-1:])
    changed.append(signature[:-1] + ALPHABET[last ^ 1 : (last ^ 1) + 1])  # an unused bit
    return [head + b"." + one for one in changed]


@pytest.mark.parametrize("policy", [{}, {"issuer": "https://id"}, {"algorithm": "HS512"}])
def test_a_token_has_one_spelling(policy: dict[str, str]) -> None:
    checked = verifier(**policy)
    good = (
        token(iss="https://id", algorithm=policy.get("algorithm", "HS256")) if policy else token()
    )
    assert checked.verify(good) == "alice"
    for other in spellings(good):
        with pytest.raises(InvalidToken):
            checked.verify(other)
    assert len(checked._verified) == 1


def test_what_is_remembered_is_small_however_long_the_token() -> None:
    checked = verifier()
    long = token(groups="g" * 2_000)
    assert checked.verify(long) == "alice"
    assert checked.known(long) == "alice"
    (key,) = checked._verified
    assert len(key) == 32
    assert checked.known(key) is None  # the digest itself opens nothing


def test_expired_tokens_leave_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = verifier()
    short = token(exp=int(time.time()) + 60)
    assert checked.verify(short) == "alice"
    assert checked.known(short) == "alice"
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert checked.known(short) is None
    with pytest.raises(InvalidToken):
        checked.verify(short)


def test_cache_is_bounded() -> None:
    checked = verifier(limit=10)
    tokens = [token(sub=f"u{n}") for n in range(50)]
    for one in tokens:
        checked.verify(one)
    assert sum(checked.known(one) is not None for one in tokens) <= 10
    assert checked.known(tokens[-1]) == "u49"


def test_threads_that_forget_the_same_token(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = verifier()
    short = token()
    checked.verify(short)
    later = time.time() + 61

    def other_thread() -> float:
        checked._verified.clear()
        return later

    monkeypatch.setattr(time, "time", other_thread)
    assert checked.known(short) is None


def test_threads_that_make_room_at_the_same_time() -> None:
    class Raced(dict[bytes, tuple[str, float]]):
        def __iter__(self) -> Iterator[bytes]:
            found = list(super().__iter__())
            self.clear()  # another thread comes between the list and the removals
            return iter(found)

    checked = verifier(limit=10)
    checked._verified = Raced()
    for n in range(11):
        assert checked.verify(token(sub=f"u{n}")) == f"u{n}"


def test_issuer_and_audience_are_checked() -> None:
    checked = verifier(issuer="https://id", audience="shop")
    assert checked.verify(token(iss="https://id", aud="shop")) == "alice"
    for wrong in ({}, {"iss": "https://id"}, {"iss": "x", "aud": "shop"}, {"aud": "shop"}):
        with pytest.raises(InvalidToken):
            checked.verify(token(**wrong))


async def test_jwks_of_an_identity_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key()))
    reads: list[int] = []

    def fetch(self: jwt.PyJWKClient) -> Any:
        reads.append(1)
        data = {"keys": [public | {"kid": "k1", "use": "sig", "alg": "RS256"}]}
        if self.jwk_set_cache is not None:
            self.jwk_set_cache.put(data)
        return data

    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", fetch)
    checked = verifier(secret="", jwks_url="https://id/jwks", algorithm="RS256")
    claims = {"sub": "alice", "exp": int(time.time()) + 60}
    good = jwt.encode(claims, private, algorithm="RS256", headers={"kid": "k1"}).encode()
    strange = jwt.encode(claims, private, algorithm="RS256", headers={"kid": "k2"}).encode()

    assert await checked.verify_async(good) == "alice"
    assert await checked.verify_async(good) == "alice"
    assert len(reads) == 1
    for other in spellings(good):
        with pytest.raises(InvalidToken):
            await checked.verify_async(other)
    for _ in range(5):
        with pytest.raises(InvalidToken):
            await checked.verify_async(strange)
    assert len(reads) <= 2  # an unknown key id reads again, but not for each token
    with pytest.raises(InvalidToken):  # our own algorithm, with a public text as its key
        await checked.verify_async(token(key="https://id/jwks" * 3))
