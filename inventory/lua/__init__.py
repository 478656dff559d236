"""The gate's scripts, one file for each verb, read once at import (`SCRIPTS`: name → script)."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """Source of a script and the digest that EVALSHA takes."""

    source: str
    sha: str


def _read(path: Path) -> Script:
    source = path.read_text("utf-8")
    digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(source=source, sha=digest)


SCRIPTS: Final[dict[str, Script]] = {
    path.stem: _read(path) for path in sorted(Path(__file__).parent.glob("*.lua"))
}
