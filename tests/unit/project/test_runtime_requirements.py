"""A newcomer's environment holds the runtime packages only: what runs must not need the tools'."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]

# Refuses to import whatever only the tools brought in, then imports what the processes import.
PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent = set(sys.argv[2].split(","))
sys.meta_path.insert(0, Absent())
exec(sys.argv[1])
"""
IMPORTS = {
    "web": "import seckill.asgi",
    "celery": "from seckill.celery import app; app.loader.import_default_modules();"
    " app.connection_for_read().transport_cls and app.backend",
    "commands": "import django, importlib; django.setup();"
    "from django.core.management import get_commands, load_command_class;"
    "[load_command_class(app, name) for name, app in get_commands().items()"
    " if isinstance(app, str) and app.split('.')[0] in"
    " ('seckill', 'orders', 'inventory', 'messaging', 'dlq_admin')]",
    "demo": "import seckill.demo.__main__, bench.loadgen.__main__, sandbox_provider, devstack.cli",
}


def test_the_check_itself_notices() -> None:
    assert "pytest" in absent_modules()
    done = start("import pytest")
    assert "No module named 'pytest'" in done.stderr


@pytest.mark.parametrize("name", IMPORTS)
def test_starts_without_the_tools(name: str) -> None:
    done = start(IMPORTS[name])
    assert done.returncode == 0, done.stderr


def start(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, program, ",".join(absent_modules())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def absent_modules() -> set[str]:
    """Return the top-level modules of packages that the runtime requirements do not bring."""
    wanted = [
        Requirement(line)
        for file in ("requirements.txt", "devstack/requirements.txt")
        for line in (ROOT / file).read_text().splitlines()
        if re.match(r"\w", line)
    ]
    there: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        for extra in ("", *requirement.extras):
            place = canonicalize_name(requirement.name), extra
            if place in there:
                continue
            there.add(place)
            wanted += [
                needed
                for needed in map(Requirement, metadata.requires(requirement.name) or ())
                if needed.marker is None or needed.marker.evaluate({"extra": extra})
            ]
    names = {name for name, _ in there} | {"pip", "setuptools"}
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not any(canonicalize_name(owner) in names for owner in owners)
    }
