"""The load generator's answer parser, and its tokens."""

import hashlib

import jwt
import pytest

from bench.loadgen.http1 import BadResponse, find_response, request_head, retry_after_s
from bench.loadgen.plan import Plan
from bench.loadgen.requests import RequestBuilder
from bench.loadgen.tally import Tally, answer_code, reservation_id
from bench.loadgen.tokens import buyer_tokens

SECRET = hashlib.sha256(b"tests").hexdigest()
RESERVATION = "rsv_01JDM3Q5T8Z0V6X2Y4W7A9B1CD"
ACCEPTED = f'{{"reservation_id":"{RESERVATION}","order_id":"ord_x","status":"QUEUED"}}'.encode()


def answer(body: bytes, *, status: str = "202 Accepted", extra: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n".encode()
    return head + extra + b"content-length: %d\r\n\r\n" % len(body) + body


def test_a_whole_answer_is_found():
    data = answer(ACCEPTED)
    response = find_response(data)
    assert response is not None
    assert (response.status, response.end) == (202, len(data))
    assert data[response.body_start : response.end] == ACCEPTED


@pytest.mark.parametrize("body", [b"", b"x", ACCEPTED])
def test_every_cut_of_an_answer_waits_for_the_rest(body):
    data = answer(body)
    assert [find_response(data[:cut]) for cut in range(1, len(data))] == [None] * (len(data) - 1)
    assert find_response(data) is not None


def test_header_names_in_any_spelling():
    data = b"HTTP/1.1 200 OK\r\nContent-Length:3\r\nX: y\r\n\r\nabc"
    assert find_response(data).end == len(data)


def test_chunked_answers():
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert find_response(data[:-1]) is None
    assert find_response(data).end == len(data)


def test_an_answer_without_a_body():
    data = b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n"
    assert find_response(data).end == len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"<html>",
        b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_refused(data):
    with pytest.raises(BadResponse):
        find_response(data)


def test_the_end_of_an_answer_is_not_the_end_of_the_bytes():
    data = answer(b"abc")
    assert find_response(data + b"HTTP/1.1").end == len(data)


def test_retry_after_is_read_from_the_head_only():
    data = answer(b"{}", status="503 Service Unavailable", extra=b"Retry-After: 2\r\n")
    assert retry_after_s(data, find_response(data).body_start) == 2
    body = b"\r\nretry-after: 9"
    data = answer(body, status="503 Service Unavailable")
    assert retry_after_s(data, find_response(data).body_start) == 0


def test_codes_and_reservations_are_found_in_bodies():
    data = answer(b'{"title":"Sold out","code":"SOLD_OUT"}', status="409 Conflict")
    assert answer_code(find_response(data), data) == "SOLD_OUT"
    data = answer(ACCEPTED)
    assert reservation_id(find_response(data), data) == RESERVATION.encode()


def test_the_tally_counts_reservations_once_and_answers_each():
    tally = Tally()
    data = answer(ACCEPTED)
    for _ in range(3):
        tally.accepted(find_response(data), data, 7)
    refusal = answer(b'{"code":"SOLD_OUT"}', status="409 Conflict")
    tally.refused(find_response(refusal), refusal)
    result = tally.result(seconds=1.0)
    assert (result.accepted, result.queued, result.users_served) == (1, 3, 1)
    assert result.codes == {"202": 3, "409 SOLD_OUT": 1}


def test_tokens_are_valid_jwts():
    tokens = list(buyer_tokens(["a", "b"], secret=SECRET, issuer="us", audience="them"))
    claims = [
        jwt.decode(token, SECRET, algorithms=["HS256"], issuer="us", audience="them")
        for token in tokens
    ]
    assert [claim["sub"] for claim in claims] == ["a", "b"]
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(tokens[0], SECRET[::-1], algorithms=["HS256"], audience="them")


def test_a_request_is_complete_http():
    plan = Plan(port=80, path="/p", users=1, holders=1, user_prefix="u", holder_prefix="h")
    builder = RequestBuilder(plan, secret=SECRET)
    head, body = builder.whole(0, key="k").split(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /p HTTP/1.1"
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert headers["content-length"] == str(len(body))
    assert headers["idempotency-key"] == "k"
    subject = jwt.decode(headers["authorization"].removeprefix("Bearer "), SECRET, ["HS256"])["sub"]
    assert subject == "u0"
    holder = builder.whole(-1).decode()
    token = holder.split("Bearer ")[1].split("\r\n")[0]
    assert jwt.decode(token, SECRET, ["HS256"])["sub"] == "h0"


def test_a_get_has_no_body():
    head = request_head(method="GET", host="h", path="/", headers={})
    assert head == b"GET / HTTP/1.1\r\nhost: h\r\n"
    assert (
        RequestBuilder(Plan(port=1, path="/", method="GET", users=1), secret="")
        .whole(0)
        .endswith(b"\r\n\r\n")
    )
