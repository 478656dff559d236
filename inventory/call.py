"""One call of the gate, built without I/O: a script or plain reads, and how to read it (pure)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(Generic[T_co]):
    """What a runner (`inventory/gate.py`) sends and how it reads the answer.

    Either `script` (a file of `inventory/lua/`, with all its keys) or `commands` (plain reads of
    one activity, in one round trip). `follow_up` looks at the answer and may ask for one more
    call: a script that found the name of a key it was not given is called again with it.
    """

    parse: Callable[[Any], T_co]
    script: str = ""
    keys: tuple[str, ...] = ()
    args: tuple[str | int, ...] = ()
    commands: tuple[tuple[str | int, ...], ...] = ()
    follow_up: "Callable[[Any], Call[T_co] | None] | None" = None
