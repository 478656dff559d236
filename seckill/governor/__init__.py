"""The governor: how much the system takes on, decided once a second, obeyed everywhere.

`current()` is all that other code needs. Source: docs/governor.md.
"""

from seckill.governor.follower import current
from seckill.governor.view import GovernorView, GroupPace, Level

__all__ = ["GovernorView", "GroupPace", "Level", "current"]
