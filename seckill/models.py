"""Tables of the project itself."""

from seckill.governor.models import GovernorDecision

__all__ = ["GovernorDecision"]
