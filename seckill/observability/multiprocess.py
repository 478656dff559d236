"""Metrics of several web processes behind one port (PROMETHEUS_MULTIPROC_DIR).

Each process writes its numbers to files; whoever is asked adds them up. Counters of a process that
died stay (they are part of the total), its gauges must go: nobody else will ever change them.
"""

import os
import re
from pathlib import Path
from typing import Final

from prometheus_client.multiprocess import mark_process_dead

_LIVE: Final = re.compile(r"gauge_live\w*_(\d+)\.db")


def forget_dead() -> None:
    """Drop the gauges of processes that are gone. Cost: a look at the folder."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder or not Path(folder).is_dir():
        return
    names = (_LIVE.fullmatch(path.name) for path in Path(folder).iterdir())
    for pid in {int(name[1]) for name in names if name}:
        if not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
