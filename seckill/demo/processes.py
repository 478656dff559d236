"""Which processes the product has, and in what environment they run."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from seckill.demo.supervision import CHECKOUT, Program, StartFailed


def product_programs(*, port: int, workers: int = 2) -> tuple[Program, ...]:
    """Return the processes of the demo; see section "Processes" of docs/flow.md.

    Args:
        port: of the web server.
        workers: web processes.
    """
    from messaging import topology

    manage = (sys.executable, "manage.py")
    web = (sys.executable, "-m", "granian", "--interface", "asgi", "--loop", "uvloop", "--no-ws")
    return (
        Program(
            name="orders",
            argv=(*manage, "run_consumer", topology.CG_ORDER_CREATE),
            count=2,
            environment={"SECKILL_ROLE": "orders"},
        ),
        Program(
            name="core",
            argv=(
                *manage,
                "run_consumer",
                topology.CG_ORDER_TIMEOUT,
                topology.CG_INVENTORY_COMPENSATE,
                topology.CG_ORDER_PROJECTION,
            ),
            environment={"SECKILL_ROLE": "core"},
        ),
        Program(
            name="side",
            argv=(*manage, "run_consumer", "--side", "--dlq-drain", "--replay"),
            environment={"SECKILL_ROLE": "side", "SECKILL_POLLERS": "1"},
        ),
        Program(
            name="sender",
            argv=(*manage, "run_sender"),
            environment={"SECKILL_ROLE": "sender"},
        ),
        Program(
            name="scanner",
            argv=(*manage, "run_scanner", "--governor"),
            environment={"SECKILL_ROLE": "scanner"},
        ),
        Program(
            name="celery",
            argv=(
                *(sys.executable, "-m", "celery", "-A", "seckill", "worker", "--beat"),
                *("--pool", "solo", "--loglevel", "WARNING", "--without-gossip"),
                *("--without-mingle", "--schedule", "{folder}/celerybeat-schedule"),
            ),
            environment={"SECKILL_ROLE": "celery"},
        ),
        Program(
            name="web",
            argv=(
                *web,
                *("--host", "127.0.0.1", "--port", str(port), "--workers", str(workers)),
                *("--log-level", "warning", "--workers-kill-timeout", "8"),
                "seckill.asgi:application",
            ),
            environment={"SECKILL_ROLE": "web", "SECKILL_WEB_PROCESSES": str(workers)},
        ),
    )


def free_port(preferred: int) -> int:
    """Return `preferred` or the next free port of the loopback address."""
    from devstack.ports import is_free

    return next(port for port in range(preferred, preferred + 500) if is_free(port))


def wait_http(url: str, *, timeout_s: float, check: Callable[[], None] | None = None) -> None:
    """Wait until `url` answers 200.

    Args:
        url: a plain HTTP address.
        timeout_s: how long to try.
        check: called between tries; may raise to give up early.

    Raises:
        StartFailed: no such answer in time.
    """
    import urllib.request

    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  (our own address)
                if answer.status == 200:
                    return
        except OSError:
            pass
        if check is not None:
            check()
        if time.monotonic() > deadline:
            raise StartFailed(f"{url} does not answer after {timeout_s:.0f} s")
        time.sleep(0.1)


def run_environment(
    stack_environment: Mapping[str, str], *, folder: Path, **more: str
) -> dict[str, str]:
    """Return the whole environment of a run: this shell's, the stack's, and what the demo needs."""
    heartbeats, static = folder / "heartbeats", folder / "static"
    shutil.rmtree(heartbeats, ignore_errors=True)
    heartbeats.mkdir(parents=True)
    static.mkdir(exist_ok=True)  # finders serve the files; the folder must only be there
    return {
        **os.environ,
        **stack_environment,
        "DJANGO_SETTINGS_MODULE": "seckill.settings",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(CHECKOUT),
        "SECKILL_DEMO_LOGIN": "1",
        "SECKILL_HEARTBEAT_DIR": str(heartbeats),
        "SECKILL_STATIC_ROOT": str(static),
        "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
        "EMAIL_FILE_PATH": str(folder / "mail"),
        "SECKILL_MAIL_DOMAIN": "buyers.example",
        **more,
    }
