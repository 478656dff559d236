"""What a person sees while the stack starts: one line per service, a bar while jars come in."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import TaskID

    from devstack.stack import Event

TITLES = {
    "postgres": "PostgreSQL 18",
    "redis": "Redis 6.2",
    "namesrv": "RocketMQ name server",
    "broker": "RocketMQ broker",
    "proxy": "RocketMQ proxy",
    "provider": "Payment provider",
}
WORDS = {"running": "already up", "stopped": "stopped", "killed": "killed"}


class Display:
    """Prints Events to standard error, so that standard output stays for results."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._lock = Lock()
        self._spinners = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._bar: TaskID | None = None
        self._said_fetch = False

    def __enter__(self) -> Self:
        """Start the live part."""
        self._spinners.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the live part."""
        self._spinners.stop()

    def tell(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            if event.state == "progress":
                self._progress(event)
            elif event.state == "note":
                self._console.print(f"[yellow]![/] {event.text}")
            elif event.state == "ready":
                self._line("[green]✓[/]", event, f"ready in {event.seconds:.1f} s")
            elif event.state in WORDS:
                self._line("[green]✓[/]", event, WORDS[event.state])

    def _line(self, mark: str, event: Event, word: str) -> None:
        self._console.print(f"{mark} {TITLES[event.service]:<22} {word:<16} {event.text}".rstrip())

    def _progress(self, event: Event) -> None:
        if self._bar is None:
            self._bar = self._spinners.add_task("RocketMQ jars", total=event.wanted)
            if not self._console.is_terminal:
                self._console.print(f"fetching RocketMQ jars, {event.wanted / 1e6:.0f} MB, once")
        self._spinners.update(self._bar, completed=event.done)
        if event.done == event.wanted:
            self._console.print(
                f"[green]✓[/] {'RocketMQ jars':<22} fetched {event.wanted / 1e6:.0f} MB"
            )
