"""Uploads that hang do not keep a real server from answering."""

import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

pytestmark = pytest.mark.process
HANGING = 12  # more than a process has lanes


def test_uploads_that_hang_keep_nobody_waiting(web_server: str) -> None:
    port = urlsplit(web_server).port
    assert port
    with ExitStack() as stack:
        hanging = []
        for _ in range(HANGING):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            client.sendall(
                b"POST /api/v1/auth/token HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{"
            )
            hanging.append(client)
        time.sleep(0.5)  # the server has read the heads

        began = time.monotonic()
        for path in ("/healthz", "/metrics", "/api/v1/activities"):
            with urlopen(f"{web_server}{path}", timeout=5) as response:  # noqa: S310 - our own
                assert response.status == 200
        assert time.monotonic() - began < 4

        hanging[0].sendall(b'"user_id": "ann"  }')
        assert hanging[0].recv(100).startswith(b"HTTP/1.1 200 ")
        assert hanging[1].recv(100).startswith(b"HTTP/1.1 408 ")
