"""Prometheus and promtool: found on the PATH, or taken out of Debian's package, not installed.

    python -m devstack.prometheus      makes both usable, says where they are

Taking them out needs apt-get and dpkg-deb (Debian, Ubuntu), no root; nothing is started.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from devstack.errors import StackError

TOOLS = Path(__file__).resolve().parent.parent / ".run" / "tools" / "prometheus"
HOW = "install Debian's package prometheus, or run: python -m devstack.prometheus"


def find(program: str) -> Path | None:
    """Return a program (`prometheus` or `promtool`), or None when it is not there."""
    found = shutil.which(program)
    if found:
        return Path(found)
    taken = TOOLS / "usr" / "bin" / program
    return taken if taken.exists() else None


def require(program: str) -> Path:
    """Return a program.

    Raises:
        StackError: it is not there; the text says what to do.
    """
    found = find(program)
    if found is None:
        raise StackError(f"{program} is not installed: {HOW}")
    return found


def take() -> None:
    """Take the programs out of Debian's package unless they are there. Downloads about 20 MB.

    Raises:
        StackError: no apt-get or dpkg-deb, or the package cannot be had.
    """
    if find("prometheus") and find("promtool"):
        return
    with tempfile.TemporaryDirectory() as folder:
        for attempt in (1, 2):
            done = _run(["apt-get", "-qq", "download", "prometheus"], folder)
            if done == "":
                break
            if attempt == 2:
                raise StackError(f"apt-get cannot download prometheus: {done}")
            _run(["apt-get", "-qq", "update"], folder)  # a new machine has no lists yet
        (package,) = Path(folder).glob("prometheus_*.deb")
        shutil.rmtree(TOOLS, ignore_errors=True)
        TOOLS.mkdir(parents=True)
        failed = _run(["dpkg-deb", "-x", str(package), str(TOOLS)], folder)
        if failed:
            raise StackError(f"dpkg-deb cannot unpack prometheus: {failed}")


def _run(command: list[str], folder: str) -> str:
    """Run a command; return the end of what it complained of, empty when it worked."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise StackError(f"{command[0]} is not here: {HOW.split(',')[0]}") from None
    return "" if done.returncode == 0 else " ".join(done.stderr.split())[-300:] or "it failed"


def main() -> int:
    """Take the programs and say where they are."""
    try:
        take()
    except StackError as error:
        sys.stderr.write(f"devstack.prometheus: {error}\n")
        return 1
    print(f"{find('prometheus')}\n{find('promtool')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
