"""A signal to this process when its parent dies (Linux; elsewhere the next start cleans up)."""

import ctypes
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def signal_when_parent_dies(number: int) -> None:
    """Let the kernel send a signal when the thread that made this process ends.

    Args:
        number: the signal; it stays armed across exec, not across fork.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
