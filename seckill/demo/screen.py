"""What a person sees while the sale runs: a live table on a terminal, plain lines elsewhere."""

import time
from typing import Any, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seckill.demo.sale import Numbers, Sale

_PLAIN_EVERY_S: Final = 2.0


class Screen:
    """Shows the numbers of a running sale.

    Args:
        console: where to.
        sale: which sale.
        buyers: how many people want it.
    """

    def __init__(self, console: Console, *, sale: Sale, buyers: int) -> None:
        self._console = console
        self._sale = sale
        self._title = f"{buyers:,} buyers want {sale.stock:,} units".replace(",", " ")
        self._live: Live | None = None
        self._began = time.monotonic()
        self._said = 0.0
        self._rates: list[tuple[float, int]] = []
        self._phase = ""

    def __enter__(self) -> Self:
        """Begin; on a terminal the table stays where it is."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End."""
        if self._live is not None:
            self._live.stop()

    def phase(self, text: str) -> None:
        """Say what happens now."""
        if text == self._phase:
            return
        self._phase = text
        if self._live is None:
            self._console.print(f"{self._clock()}  {text}")

    def show(self, numbers: Numbers, progress: dict[str, Any]) -> None:
        """Show one look at the sale and at the crowd."""
        answers = int(progress.get("answers", 0))
        rate = self._rate(answers)
        if self._live is not None:
            self._live.update(self._table(numbers, progress, rate), refresh=True)
        elif time.monotonic() - self._said >= _PLAIN_EVERY_S:
            self._said = time.monotonic()
            self._console.print(self._line(numbers, progress, rate), soft_wrap=True)

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60:02d}:{seconds % 60:02d}"

    def _rate(self, answers: int) -> int:
        """Return answers per second over about two seconds."""
        now = time.monotonic()
        self._rates.append((now, answers))
        while len(self._rates) > 2 and now - self._rates[0][0] > 2.0:
            self._rates.pop(0)
        (_, before), span = self._rates[0], now - self._rates[0][0]
        return int((answers - before) / span) if span > 0.2 else 0

    def _line(self, numbers: Numbers, progress: dict[str, Any], rate: int) -> str:
        return (
            f"{self._clock()}  {rate} req/s · {progress.get('accepted', 0)} accepted ·"
            f" {numbers.orders} orders · {numbers.paid} paid · {numbers.canceled} timed out ·"
            f" {numbers.left_at_gate} left · lag {numbers.lag_s:.1f} s"
        )

    def _table(self, numbers: Numbers, progress: dict[str, Any], rate: int) -> Group:
        stock = self._sale.stock
        codes: dict[str, int] = progress.get("codes", {})
        refused = sum(count for code, count in codes.items() if code.startswith("503"))
        grid = Table.grid(padding=(0, 3))
        grid.add_column()
        grid.add_column(justify="right", min_width=9, style="bold")
        grid.add_column(min_width=34)

        def row(name: str, value: int, note: str | ProgressBar = "") -> None:
            grid.add_row(name, f"{value:,}".replace(",", " "), note)

        answers = int(progress.get("answers", 0))
        row("requests answered", answers, f"{rate:,} a second".replace(",", " "))
        accepted = int(progress.get("accepted", 0))
        row("accepted", accepted, "each one promised a unit")
        again = codes.get("409 ALREADY_RESERVED", 0) + codes.get("202", 0) - accepted
        row("clicked again", max(again, 0), "got the same unit, not a second one")
        row("told sold out", codes.get("409 SOLD_OUT", 0), "units may come back")
        row("asked to come again", refused, "503 with Retry-After")
        row("orders", numbers.orders, f"the oldest without one is {numbers.lag_s:.1f} s old")
        row("paid", numbers.paid, ProgressBar(total=stock, completed=numbers.paid, width=32))
        row("waiting for payment", numbers.unpaid)
        row("timed out, sold again", numbers.canceled)
        row("left at the gate", numbers.left_at_gate)
        head = Text.assemble((self._title, "bold"), f"   {self._clock()}   ", (self._phase, "cyan"))
        return Group(head, Text(""), grid)
