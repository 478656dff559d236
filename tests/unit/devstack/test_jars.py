"""The jar cache: interrupted fetches resume, wrong files are refused, messages say what to do."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from devstack import jars
from devstack.errors import FetchFailed


def content_of(name: str) -> bytes:
    return f"the jar {name}".encode()


def jar(name: str) -> jars.Jar:
    content = content_of(name)
    return jars.Jar(
        group="org.example",
        artifact=name,
        version="1.0",
        classifier="",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


class FakeRepository:
    """Serves jars; ``failing`` maps an artifact to how it goes wrong."""

    def __init__(self, failing: dict[str, BaseException | bytes] | None = None) -> None:
        self.failing = failing or {}
        self.fetched: list[str] = []

    def __call__(self, wanted: jars.Jar, scratch: Path) -> Path:
        path = scratch / "download.jar"
        fault = self.failing.get(wanted.artifact)
        if isinstance(fault, BaseException):
            path.write_bytes(content_of(wanted.artifact)[:3])  # half a file stays behind
            raise fault
        path.write_bytes(content_of(wanted.artifact) if fault is None else fault)
        self.fetched.append(wanted.artifact)
        return path


def test_an_interrupted_fetch_continues_with_what_is_missing(tmp_path: Path) -> None:
    wanted = [jar(name) for name in ("a", "b", "c")]
    cut = FakeRepository(failing={"b": ConnectionError("connection reset")})
    with pytest.raises(FetchFailed):
        jars.ensure(jars=wanted, folder=tmp_path, fetch=cut)
    kept = {path.name for path in tmp_path.glob("*.jar")}
    assert wanted[1].filename not in kept

    whole = FakeRepository()
    paths = jars.ensure(jars=wanted, folder=tmp_path, fetch=whole)

    assert sorted(whole.fetched) == sorted(j.artifact for j in wanted if j.filename not in kept)
    assert [path.read_bytes() for path in paths] == [content_of(n) for n in ("a", "b", "c")]
    assert list(tmp_path.glob(".part-*")) == []


def test_a_failed_fetch_says_which_why_and_what_to_do(tmp_path: Path) -> None:
    broken = FakeRepository(failing={"a": ConnectionError("name not\nresolved")})

    with pytest.raises(FetchFailed) as caught:
        jars.ensure(jars=[jar("a")], folder=tmp_path, fetch=broken)

    text = str(caught.value)
    assert "org.example:a:1.0" in text
    assert "name not resolved" in text
    assert "run this again" in text
    assert "\n" not in text
    assert caught.value.exit_code == 3


def test_a_file_with_another_hash_is_refused_and_not_kept(tmp_path: Path) -> None:
    same_size = bytes(reversed(content_of("a")))
    forged = FakeRepository(failing={"a": same_size})

    with pytest.raises(FetchFailed, match="sha256"):
        jars.ensure(jars=[jar("a")], folder=tmp_path, fetch=forged)

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_fetched_when_all_is_there(tmp_path: Path) -> None:
    wanted = [jar("a"), jar("b")]
    jars.ensure(jars=wanted, folder=tmp_path, fetch=FakeRepository())
    second = FakeRepository()

    jars.ensure(jars=wanted, folder=tmp_path, fetch=second)

    assert second.fetched == []


def test_a_truncated_file_is_fetched_again(tmp_path: Path) -> None:
    wanted = jar("a")
    (tmp_path / wanted.filename).write_bytes(content_of("a")[:-1])
    repository = FakeRepository()

    jars.ensure(jars=[wanted], folder=tmp_path, fetch=repository)

    assert repository.fetched == ["a"]
    assert (tmp_path / wanted.filename).read_bytes() == content_of("a")


def test_verify_finds_a_changed_file_of_the_same_size(tmp_path: Path) -> None:
    wanted = jar("a")
    (tmp_path / wanted.filename).write_bytes(bytes(reversed(content_of("a"))))
    repository = FakeRepository()

    jars.ensure(jars=[wanted], folder=tmp_path, fetch=repository)
    assert repository.fetched == []
    jars.ensure(jars=[wanted], folder=tmp_path, fetch=repository, verify=True)

    assert repository.fetched == ["a"]


def test_progress_ends_at_the_wanted_size(tmp_path: Path) -> None:
    wanted = [jar("a"), jar("bb")]
    seen: list[tuple[int, int]] = []

    jars.ensure(
        jars=wanted,
        folder=tmp_path,
        fetch=FakeRepository(),
        progress=lambda done, total, _name: seen.append((done, total)),
    )

    assert seen[-1] == (sum(j.size for j in wanted), sum(j.size for j in wanted))


def test_the_lock_list_is_complete_and_has_no_double() -> None:
    locked = jars.read_lock()

    names = {f"{j.group}:{j.artifact}" for j in locked}
    assert {"org.apache.rocketmq:rocketmq-broker", "org.apache.rocketmq:rocketmq-proxy"} <= names
    assert len({j.filename for j in locked}) == len(locked)
    assert all(len(j.sha256) == 64 and j.size > 0 for j in locked)
