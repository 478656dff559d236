"""Which effect groups there are: every module of this folder that defines `EFFECT`."""

import pkgutil
from importlib import import_module

from messaging.consumer import Handler
from messaging.topology import group_spec
from orders import effects
from orders.effects.base import EffectGroup, EffectHandler


def effect_groups() -> tuple[EffectGroup, ...]:
    """Return the groups, by file name. Raises KeyError for one without a row in the topology."""
    found = []
    for module in pkgutil.iter_modules(effects.__path__, f"{effects.__name__}."):
        group = getattr(import_module(module.name), "EFFECT", None)
        if isinstance(group, EffectGroup):
            group_spec(group.name)
            found.append(group)
    return tuple(found)


def effect_handlers() -> dict[str, Handler]:
    """Return the handler of each effect group, by its registry name."""
    return {group.name: EffectHandler(group) for group in effect_groups()}
