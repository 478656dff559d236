"""Admin pages of the project itself."""

from seckill.governor.admin import DecisionAdmin

__all__ = ["DecisionAdmin"]
