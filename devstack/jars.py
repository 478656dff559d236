"""The RocketMQ jars: a lock list, fetched into a cache jar by jar and checked by sha256.

jgo's Maven client does the transfer, with its own idea of the repository (the user's jgo.conf,
else its default). Its resolver for whole dependency trees is not used: it fails on a version range,
and a lock list is exact anyway.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devstack.errors import FetchFailed

LOCK_FILE = Path(__file__).with_name("rocketmq-5.5.0.lock")
THREADS = 8
TRIES = 3


@dataclass(frozen=True, kw_only=True)
class Jar:
    """One line of the lock list."""

    group: str
    artifact: str
    version: str
    classifier: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The coordinates, as a person writes them."""
        return ":".join(
            part for part in (self.group, self.artifact, self.version, self.classifier) if part
        )

    @property
    def filename(self) -> str:
        """File name in the cache; with the group, for two groups may use one artifact name."""
        return f"{self.group}-{'-'.join(self.name.split(':')[1:])}.jar"


Fetch = Callable[[Jar, Path], Path]
"""Download one jar into an empty folder and return the file; any exception means it could not."""
Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes wanted and the jar just finished."""


def cache_folder() -> Path:
    """Return the folder of the jars, shared by all checkouts of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "seckill" / "jars"


def read_lock(path: Path = LOCK_FILE) -> list[Jar]:
    """Parse the lock list."""
    jars = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        coordinates, size, sha256 = line.split()
        group, artifact, version, *classifier = coordinates.split(":")
        jars.append(
            Jar(
                group=group,
                artifact=artifact,
                version=version,
                classifier="".join(classifier),
                size=int(size),
                sha256=sha256,
            )
        )
    return jars


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_good(*, jar: Jar, folder: Path, verify: bool) -> bool:
    """Tell whether the cached file is the locked one: by size, by hash as well when ``verify``."""
    path = folder / jar.filename
    try:
        if path.stat().st_size != jar.size:
            return False
    except FileNotFoundError:
        return False
    return not verify or sha256_of(path) == jar.sha256


def ensure(
    *,
    jars: list[Jar] | None = None,
    folder: Path | None = None,
    verify: bool = False,
    fetch: Fetch | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Make sure that every jar is in the cache and return their paths in lock order.

    An interrupted run leaves whole, checked files only; the next one fetches what is missing.

    Raises:
        FetchFailed: a jar could not be fetched, or what came is not the locked file.
    """
    jars = read_lock() if jars is None else jars
    folder = cache_folder() if folder is None else folder
    missing = [jar for jar in jars if not is_good(jar=jar, folder=folder, verify=verify)]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch_all(jars=missing, folder=folder, fetch=fetch or jgo_fetch(), progress=progress)
    return [folder / jar.filename for jar in jars]


def _fetch_all(*, jars: list[Jar], folder: Path, fetch: Fetch, progress: Progress | None) -> None:
    """Fetch ``jars`` with some threads; the first failure stops the rest, what is done stays."""
    wanted, done = sum(jar.size for jar in jars), 0
    largest_first = sorted(
        jars, key=lambda jar: -jar.size
    )  # or the 34 MB one would run alone at the end
    with ThreadPoolExecutor(THREADS, thread_name_prefix="jars") as pool:
        futures = {
            pool.submit(_fetch_one, jar=jar, folder=folder, fetch=fetch): jar
            for jar in largest_first
        }
        try:
            for future in as_completed(futures):
                future.result()
                done += futures[future].size
                if progress:
                    progress(done, wanted, futures[future].name)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch_one(*, jar: Jar, folder: Path, fetch: Fetch) -> None:
    """Fetch one jar beside the cache, check it, then move it in by one atomic rename."""
    problem = ""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as scratch:
            try:
                path = fetch(jar, Path(scratch))
            except Exception as error:  # any reason: the user gets it in one line
                problem = " ".join(str(error).split())[:300] or type(error).__name__
                continue
            digest = sha256_of(path)
            if digest == jar.sha256:
                path.replace(folder / jar.filename)
                return
            problem = f"its sha256 is {digest}, the lock list says {jar.sha256}"
    raise FetchFailed(
        f"could not fetch {jar.name}: {problem}. Check the network and proxy settings, then"
        " run this again: it continues with what is missing"
    )


def jgo_fetch() -> Fetch:
    """Return a fetch function over jgo's Maven client."""
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    repositories: dict[str, str] | None = GlobalSettings.load().repositories or None

    def fetch(jar: Jar, scratch: Path) -> Path:
        context: Any = MavenContext(repo_cache=scratch, remote_repos=repositories, timeout=30)
        component = context.project(jar.group, jar.artifact).at_version(jar.version)
        return Path(component.artifact(jar.classifier, packaging="jar").resolve())

    return fetch
