"""SQL of the console: what Django's models cannot say."""

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).resolve().parent


def sql_file(name: str) -> str:
    """Return the text of a file of this folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")
