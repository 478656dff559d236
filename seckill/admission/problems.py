"""Every refusal that a client can get: RFC 9457 problem details with a stable `code` (pure).

Clients decide by `code`; `title` and `detail` are for people and may change. The same table serves
the hot endpoint (as ready bytes) and the REST API (`seckill/api/problems.py`).
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

CONTENT_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response ready to send. `code` is what it is counted under."""

    code: str
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of problem: HTTP status, title, text for people, seconds to wait before a retry."""

    status: int
    title: str
    detail: str
    retry_after_s: int | None = None


PROBLEMS: Final[dict[str, ProblemType]] = {
    "BAD_REQUEST": ProblemType(400, "Bad request", "The request is not what the schema describes."),
    "BAD_BODY": ProblemType(
        400,
        "Bad body",
        'The body must be JSON like {"quantity": 1}, quantity a whole number from 1.',
    ),
    "BAD_IDEMPOTENCY_KEY": ProblemType(
        400,
        "Bad Idempotency-Key",
        "An Idempotency-Key is 1 to 64 characters of A-Z a-z 0-9 . _ : -",
    ),
    "UNAUTHENTICATED": ProblemType(
        401, "Not authenticated", "Send a valid token: Authorization: Bearer <token>."
    ),
    "FORBIDDEN": ProblemType(403, "Forbidden", "You may not do this."),
    "NOT_STARTED": ProblemType(403, "Not started", "The sale has not started yet."),
    "ENDED": ProblemType(403, "Ended", "The sale is over."),
    "CLOSED": ProblemType(403, "Closed", "The sale is closed or paused."),
    "DENIED": ProblemType(403, "Denied", "You may not buy in this sale."),
    "TOKEN_REQUIRED": ProblemType(
        403, "Token required", "Get a purchase token first: POST …/skus/{sku_id}/purchase-token."
    ),
    "TOKEN_INVALID": ProblemType(
        403, "Token invalid", "The purchase token was not made for you and this SKU."
    ),
    "TOKEN_EXPIRED": ProblemType(403, "Token expired", "Get a new purchase token."),
    "CAPTCHA_FAILED": ProblemType(
        403, "Captcha failed", "Solve the captcha and send its answer as `captcha`."
    ),
    "NOT_FOUND": ProblemType(404, "Not found", "There is no such thing, or it is not yours."),
    "METHOD_NOT_ALLOWED": ProblemType(
        405, "Method not allowed", "This address takes another method."
    ),
    "NOT_ACCEPTABLE": ProblemType(406, "Not acceptable", "This address answers in JSON."),
    "BODY_TOO_SLOW": ProblemType(408, "Body too slow", "The body did not come in time. Try again."),
    "SOLD_OUT": ProblemType(
        409, "Sold out", "No unit is free now. Some may come back until the sale ends."
    ),
    "NO_TOKENS_LEFT": ProblemType(
        409, "No tokens left", "All purchase tokens are out; unused ones come back in a while."
    ),
    "TOKEN_NOT_NEEDED": ProblemType(
        409, "Token not needed", "This sale needs no purchase token: just reserve."
    ),
    "ALREADY_RESERVED": ProblemType(
        409, "Already reserved", "You hold a reservation of this already: follow status_url."
    ),
    "REQUEST_CONFLICT": ProblemType(
        409, "Request conflict", "This Idempotency-Key was used for another SKU or body."
    ),
    "RESERVATION_ENDED": ProblemType(
        409, "Reservation ended", "The reservation of this request is over; `reason` tells why."
    ),
    "ORDER_STATE_CONFLICT": ProblemType(
        409,
        "Order state conflict",
        "The order's state does not allow this; `order_status` tells it.",
    ),
    "TOO_LARGE": ProblemType(413, "Too large", "The body may have 4096 bytes."),
    "UNSUPPORTED_MEDIA_TYPE": ProblemType(
        415, "Unsupported media type", "Send Content-Type: application/json."
    ),
    "LIMIT_EXCEEDED": ProblemType(
        422, "Limit exceeded", "The quantity is above the limit for one buyer."
    ),
    "THROTTLED": ProblemType(429, "Too many requests", "Slow down, then try again.", 1),
    "INTERNAL": ProblemType(500, "Internal error", "Something broke on our side; it was logged."),
    "NOT_IMPLEMENTED": ProblemType(501, "Not implemented", "This installation does not offer it."),
    "BUSY": ProblemType(503, "Busy", "Too much is under way; nothing was reserved. Try again.", 1),
    "OVERLOADED": ProblemType(
        503, "Overloaded", "This server's queue is full; nothing was reserved. Try again.", 1
    ),
    "GATE_LOST": ProblemType(
        503, "Sale interrupted", "The sale is interrupted; nothing was reserved. Try again.", 5
    ),
    "SEND_FAILED": ProblemType(
        503, "Not reserved", "The order could not be passed on; nothing is reserved. Try again.", 1
    ),
    "FAIL_CLOSED": ProblemType(
        503, "Not taking orders", "Orders cannot be passed on now; nothing was reserved.", 5
    ),
    "RESULT_UNKNOWN": ProblemType(
        503, "Result unknown", "Repeat the request with the same Idempotency-Key to learn it.", 1
    ),
    "UNAVAILABLE": ProblemType(503, "Unavailable", "A needed part does not answer. Try again.", 1),
}


def problem_document(code: str, *, detail: str | None = None, **extra: Any) -> dict[str, Any]:
    """Return the JSON object of a problem; `extra` are members of its own, such as `reason`."""
    kind = PROBLEMS[code]
    return {
        "type": f"urn:seckill:problem:{code}",
        "title": kind.title,
        "status": kind.status,
        "code": code,
        "detail": detail or kind.detail,
        **extra,
    }


def problem_headers(code: str) -> dict[str, str]:
    """Return the headers that a problem's answer carries beside its content type."""
    kind = PROBLEMS[code]
    headers = {"Cache-Control": "no-store"}
    if kind.retry_after_s is not None:
        headers["Retry-After"] = str(kind.retry_after_s)
    if kind.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def build(code: str, *, detail: str | None = None, **extra: Any) -> Answer:
    """Build the answer of a problem with members of its own."""
    body = orjson.dumps(problem_document(code, detail=detail, **extra))
    headers = [
        (b"content-type", CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        *((name.lower().encode(), value.encode()) for name, value in problem_headers(code).items()),
    ]
    return Answer(code, PROBLEMS[code].status, headers, body)


def method_not_allowed(allow: bytes) -> Answer:
    """Return the 405 that names the method to use."""
    answer = ready("METHOD_NOT_ALLOWED")
    return Answer(answer.code, answer.status, [*answer.headers, (b"allow", allow)], answer.body)


_ready: Final = {code: build(code) for code in PROBLEMS}


def ready(code: str) -> Answer:
    """Return the prebuilt answer of a problem without members of its own."""
    return _ready[code]
