"""Where PostgreSQL's cluster lives, and that a cluster that is there already is never deleted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack import packages, postgres
from devstack.errors import StackError
from devstack.postgres import PostgresServer
from devstack.processes import Account
from devstack.state import RunFolder, Settings

NOBODY = Account(name="nobody", uid=os.geteuid(), gid=os.getegid())


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter: pytest's own may be private."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def server(public: Path, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    """A server whose run folder only root may enter, as in a checkout below /root."""

    def copy_nothing(self: PostgresServer) -> None:
        self.home.mkdir(exist_ok=True)

    monkeypatch.setattr(PostgresServer, "account", lambda self: NOBODY)
    monkeypatch.setattr(postgres, "_can_use", lambda **kwargs: False)  # only root can try
    monkeypatch.setattr(PostgresServer, "_copy_programs", copy_nothing)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(public))
    run = public / "private" / "run"
    run.mkdir(parents=True)
    run.parent.chmod(0o700)
    return PostgresServer(folder=RunFolder(path=run), settings=Settings())


def make_cluster(server: PostgresServer) -> Path:
    server.data.mkdir(parents=True)
    kept = server.data / "PG_VERSION"
    kept.write_text("18\n", encoding="utf-8")
    return kept


def test_a_cluster_that_cannot_be_reached_any_more_is_kept_and_the_person_told(
    server: PostgresServer, public: Path
) -> None:
    kept = make_cluster(server)
    blocked = public / "private"

    with pytest.raises(StackError) as told:
        server.prepare()

    assert kept.read_text(encoding="utf-8") == "18\n"
    assert server.settings.postgres_home == ""
    assert str(told.value) == (
        f"nobody cannot reach {blocked}, and the cluster in {server.data} needs it: let others in"
        f" again (chmod o+rx {blocked}), or give the cluster and all other data of the stack up"
        " with bin/stack reset"
    )


def test_the_programs_are_named_when_it_is_they_that_cannot_be_reached(
    server: PostgresServer, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = make_cluster(server)
    (public / "private").chmod(0o755)
    programs = public / "programs"
    programs.mkdir(mode=0o700)
    monkeypatch.setattr(packages, "postgres", lambda: programs)

    with pytest.raises(StackError, match=f"cannot reach {programs}, "):
        server.prepare()

    assert kept.exists()


def test_without_a_cluster_the_home_moves_and_an_empty_folder_is_removed(
    server: PostgresServer, public: Path
) -> None:
    inside = server.home

    server._choose_home()

    assert server.home.parent == public
    assert not inside.exists()


def test_what_is_no_cluster_of_ours_is_not_deleted_either(
    server: PostgresServer, public: Path
) -> None:
    other = server.home / "dump.sql"
    other.parent.mkdir()
    other.touch()

    server._choose_home()

    assert server.home.parent == public
    assert other.exists()
