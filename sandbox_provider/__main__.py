"""`python -m sandbox_provider --port N --book FILE`: one process, ended by SIGTERM.

The environment gives the secrets: PAYMENT_PROVIDER_KEY, SECKILL_WEBHOOK_SECRET.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from granian.constants import Interfaces
from granian.server.embed import Server

from sandbox_provider.app import Provider
from sandbox_provider.book import Book


async def _serve(server: Server) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    await server.serve()


def main() -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m sandbox_provider", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--book", type=Path, required=True, help="its SQLite file")
    parser.add_argument("--webhook-url", default="", help="for payments that name no address")
    parser.add_argument("--test-mode", action="store_true", help="allow faults on request")
    options = parser.parse_args()
    key = os.environ.get("PAYMENT_PROVIDER_KEY", "")
    secret = os.environ.get("SECKILL_WEBHOOK_SECRET", "")
    if not key or not secret:
        sys.stderr.write("PAYMENT_PROVIDER_KEY and SECKILL_WEBHOOK_SECRET must be set\n")
        return 78  # EX_CONFIG
    options.book.parent.mkdir(parents=True, exist_ok=True)
    book = Book(options.book)
    provider = Provider(
        book=book,
        api_key=key,
        webhook_secret=secret,
        webhook_url=options.webhook_url,
        test_mode=options.test_mode,
    )
    server = Server(
        provider,
        address=options.host,
        port=options.port,
        interface=Interfaces.ASGINL,
        websockets=False,
        log_enabled=False,
    )
    asyncio.run(_serve(server))
    book.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
