"""The sandbox payment provider: one small process with a book of its own."""

from __future__ import annotations

import http.client
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from devstack.ports import HOST
from devstack.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKOUT = Path(__file__).resolve().parent.parent


class PaymentProvider(Service):
    """`python -m sandbox_provider`, with faults on request."""

    name = "provider"
    title = "Sandbox payment provider"
    start_timeout_s = 30
    stop_grace_s = 5

    def working_directory(self) -> Path:
        """Return the folder from which the package is imported."""
        return CHECKOUT

    def prepare(self) -> None:
        """Nothing to prepare: it makes its book itself."""

    def environment(self) -> dict[str, str]:
        """Return its environment: the two secrets that it shares with the application."""
        secrets = self.folder.secrets()
        names = ("PAYMENT_PROVIDER_KEY", "SECKILL_WEBHOOK_SECRET")
        return super().environment() | {name: secrets[name] for name in names}

    def argv(self) -> Sequence[str]:
        """Return the command line."""
        book = self.folder.path / "provider" / "book.sqlite3"
        return [
            *(sys.executable, "-m", "sandbox_provider", "--host", HOST),
            *("--port", str(self.port), "--book", str(book), "--test-mode"),
        ]

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=1)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
