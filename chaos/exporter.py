"""The broker's metrics page as the governor sees it: passed on, or with nonsense in it."""

import re
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import urllib3

from chaos.wires import HOST

_NUMBER: Final = re.compile(rb"^(rocketmq_consumer_\w+\{[^\n]*\}) [^\n]*$", re.MULTILINE)
_PATIENCE_S: Final = 3.0


class Exporter:
    """An HTTP server in front of the exporter.

    Args:
        url: of the real page.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._mode = ""
        self._healed = threading.Event()
        self._healed.set()
        self._http = urllib3.PoolManager(retries=False, timeout=_PATIENCE_S)
        self.spoilt = 0  # answers that were not the exporter's own
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True).start()

    @property
    def url(self) -> str:
        """Where the page is now."""
        return f"http://{HOST}:{self._server.server_address[1]}/metrics"

    def spoil(self, mode: str) -> None:
        """Answer `nothing`, `garbage`, `nan` or `huge` numbers until `heal`."""
        self._mode, self.spoilt = mode, 0
        self._healed.clear()

    def heal(self) -> None:
        """Answer what the exporter says."""
        self._mode = ""
        self._healed.set()

    def close(self) -> None:
        """Answer no more."""
        self.heal()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        mode = self._mode
        if mode:
            self.spoilt += 1
        if mode == "nothing":
            self._healed.wait(10 * _PATIENCE_S)
            return
        try:
            page = secrets.token_bytes(5_000) if mode == "garbage" else self._page(mode)
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(page)))
            handler.end_headers()
            handler.wfile.write(page)
        except (urllib3.exceptions.HTTPError, OSError):
            return  # the broker is down, or nobody waits any more

    def _page(self, mode: str) -> bytes:
        page = bytes(self._http.request("GET", self._url).data)
        number = {"nan": b"NaN", "huge": b"1e308"}.get(mode)
        return _NUMBER.sub(rb"\1 " + number, page) if number else page
