"""Requests as bytes, made from a plan."""

import secrets

from bench.loadgen.http1 import request_head
from bench.loadgen.plan import Plan
from bench.loadgen.tokens import buyer_tokens


class RequestBuilder:
    """Builds one buyer's requests. Users count from 0, holders from -1 downwards."""

    def __init__(self, plan: Plan, *, secret: str, issuer: str = "", audience: str = "") -> None:
        body = plan.body.encode() if plan.method == "POST" else b""
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        self._heads = [
            request_head(
                method=plan.method,
                host=f"{plan.host}:{plan.port}",
                path=path,
                headers=headers if body else {},
            )
            for path in (plan.path, *plan.more_paths)
        ]
        self._end = b"\r\n" + body
        self._keys = plan.keys
        self._run = secrets.token_hex(4)
        users = [f"{plan.user_prefix}{plan.first_user + n}" for n in range(plan.users)]
        holders = [f"{plan.holder_prefix}{n}" for n in range(plan.holders)]
        tokens = list(
            buyer_tokens(users + holders, secret=secret, issuer=issuer, audience=audience)
            if secret
            else [""] * (len(users) + len(holders))
        )
        self._tokens = tokens[: len(users)]
        self._holder_tokens = tokens[len(users) :]

    def whole(self, user: int, *, key: str = "") -> bytes:
        """Return one request of a user, with his one key unless another is given."""
        token = self._tokens[user] if user >= 0 else self._holder_tokens[-1 - user]
        lines = self._heads[user % len(self._heads)]
        if token:
            lines += b"authorization: Bearer " + token.encode() + b"\r\n"
        if self._keys:
            lines += b"idempotency-key: " + (key or f"{self._run}-{user}").encode() + b"\r\n"
        return lines + self._end

    def key(self, user: int, click: int) -> str:
        """Return the key of a buyer's click; unique to this run."""
        return f"{self._run}-{user}-{click}"
