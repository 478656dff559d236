"""SQL of the console: what Django's models cannot say.

A file with a number belongs to the migration of that number and stays as it is: a change is a new
file of a new migration. `roles.sql` is run anew by each `manage.py grant_roles`.
"""

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).resolve().parent


def sql_file(name: str) -> str:
    """Return the text of a file of this folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")
