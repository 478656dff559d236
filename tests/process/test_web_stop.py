"""A web process that streams ends at once when it is asked to."""

import http.client
import time
from urllib.parse import urlsplit

import psutil
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

pytestmark = pytest.mark.process


def server(port: int) -> psutil.Process:
    (found,) = [
        child for child in psutil.Process().children() if str(port) in " ".join(child.cmdline())
    ]
    return found


def test_an_open_stream_does_not_keep_the_server_from_ending(web_server: str) -> None:
    port = urlsplit(web_server).port
    assert port
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    stream = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    stream.request(
        "GET",
        "/admin/monitor/stream",
        headers={"Cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"},
    )
    answer = stream.getresponse()
    assert answer.status == 200
    assert answer.read1(20).startswith(b"event: ")

    process = server(port)
    began = time.monotonic()
    process.terminate()
    psutil.wait_procs([process], timeout=10)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert time.monotonic() - began < 5
    stream.close()
