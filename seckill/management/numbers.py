"""Numbers as arguments of commands: what makes no sense is refused before anything runs."""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable


def above_zero(kind: type[int] | type[float]) -> Callable[[str], float]:
    """Return an argparse type for finite numbers above 0."""
    return _reader(kind, lambda value: value > 0, "a number above 0")


def not_negative(kind: type[int] | type[float]) -> Callable[[str], float]:
    """Return an argparse type for finite numbers from 0 on."""
    return _reader(kind, lambda value: value >= 0, "0 or a number above it")


def _reader(
    kind: type[int] | type[float], fits: Callable[[float], bool], wanted: str
) -> Callable[[str], float]:
    whole = "a whole number, " if kind is int else ""

    def read(text: str) -> float:
        try:
            value: float = kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not fits(value):
            raise ArgumentTypeError(f"{text!r} is not {whole}{wanted}")
        return value

    return read
