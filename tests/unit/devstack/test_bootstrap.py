"""A machine that cannot run the project is told in one line what is missing and what to do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "devstack" / "bootstrap.sh"
# All that the script needs beside Python.
TOOLS = ("bash", "awk", "cat", "cksum", "df", "dirname", "flock", "rm", "tail")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but the script and empty requirements, and a PATH without Python."""
    (tmp_path / "devstack").mkdir()
    shutil.copy(SCRIPT, tmp_path / "devstack" / "bootstrap.sh")
    for name in ("requirements.txt", "devstack/requirements.txt", "requirements-dev.txt"):
        (tmp_path / name).touch()
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def stand_in(checkout: Path, name: str, script: str) -> None:
    path = checkout / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{checkout}/bin/bash\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def bootstrap(checkout: Path) -> tuple[int, str]:
    done = subprocess.run(
        [str(checkout / "bin" / "bash"), str(checkout / "devstack" / "bootstrap.sh"), "dev"],
        env={"PATH": str(checkout / "bin"), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stderr


def test_a_full_disk(checkout: Path) -> None:
    stand_in(checkout, "bin/df", 'printf "Filesystem\\n/dev/x 100 90 1048576 90%% /\\n"')
    code, said = bootstrap(checkout)
    assert code == 4
    assert said.startswith("seckill: less than 2 GB free in ")
    assert said.endswith("(1024 MB): free some disk space, then run this again\n")
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("python", ["none", "an old one"])
def test_no_python_that_is_new_enough(checkout: Path, python: str) -> None:
    if python == "an old one":
        stand_in(checkout, "bin/python3", "exit 1")
    code, said = bootstrap(checkout)
    assert code == 4
    assert said == (
        "seckill: Python 3.11 or newer not found: install it (apt install python3 python3-venv)"
        " or name it in SECKILL_PYTHON\n"
    )


def test_a_python_without_venv(checkout: Path) -> None:
    stand_in(checkout, "bin/python3", 'case "$2" in *venv*) exit 1 ;; esac')
    code, said = bootstrap(checkout)
    assert code == 4
    assert said == (
        f"seckill: {checkout}/bin/python3 has no venv module: apt install python3-venv,"
        " then run this again\n"
    )


def test_packages_that_cannot_be_fetched(checkout: Path) -> None:
    stand_in(checkout, ".venv/bin/python", '[ "$1" = -c ] || { echo "no route to host"; exit 1; }')
    code, said = bootstrap(checkout)
    assert code == 3
    assert "no route to host" in said
    assert "check network, proxy and pip settings, then run this again" in said
    assert not list((checkout / ".venv").glob(".seckill-stamp*"))
