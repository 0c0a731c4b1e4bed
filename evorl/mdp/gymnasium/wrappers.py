"""The wrappers that a config lists (``mdp.wrappers``): classes of gymnasium, or of a module that the run trusts.

A wrapper is ``Name`` of gymnasium.wrappers or ``module:Class``. ``{Name: {key: value}}`` gives it keyword arguments.
Those that remember something beyond an episode are refused, since an episode is its seed and its actions.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evorl.util.errors import BadRequest, nearest, reason

KEY = "wrappers"
INSTEAD = {
    "NormalizeObservation": "rl.normalize_inputs=true",
    "NormalizeReward": "rl.normalize_rewards=true",
    "Autoreset": "nothing: ended episodes are followed by the next one",
    "RecordVideo": "evorl.evaluate with video=true",
    "HumanRendering": "evorl.evaluate with video=true",
    "RecordEpisodeStatistics": "nothing: returns and lengths are recorded",
    "TimeLimit": "mdp.time_limit",
    "OrderEnforcing": "nothing: evorl resets before it steps",
    "PassiveEnvChecker": "evorl.mdp.check",
}
"""Wrappers of gymnasium that episodes cannot have, or that evorl replaces, each with what to use."""


class Wrapper(NamedTuple):
    """A wrapper as the config names it."""

    module: str
    name: str
    kwargs: Mapping[str, Any]

    @property
    def ours(self) -> bool:
        """Whether it is one of gymnasium's own."""
        return self.module == "gymnasium.wrappers"


def parsed(entries: Iterable[Any]) -> list[Wrapper]:
    """The wrappers of a config, from the innermost on. Raises `BadRequest`."""
    wrappers = []
    for entry in entries:
        if isinstance(entry, Mapping) and len(entry) != 1:
            raise BadRequest(f"expected a name, or one name with its keywords, got {dict(entry)}", KEY)
        path, kwargs = next(iter(entry.items())) if isinstance(entry, Mapping) else (entry, {})
        module, colon, name = path.rpartition(":")
        if not all(part.isidentifier() for part in [*(module.split(".") if colon else []), name]):
            raise BadRequest(f"expected NAME of gymnasium.wrappers or module:Class, got {path}", KEY)
        wrappers.append(Wrapper(module or "gymnasium.wrappers", name, kwargs))
    return wrappers


def kinds(wrappers: Sequence[Wrapper]) -> list[type]:
    """The classes of wrappers. Raises `BadRequest`."""
    import gymnasium

    kinds_of_wrappers = []
    for wrapper in wrappers:
        if wrapper.ours and wrapper.name in INSTEAD:
            raise BadRequest(f"{wrapper.name} has no place here; use {INSTEAD[wrapper.name]}", KEY)
        try:
            module = importlib.import_module(wrapper.module)
        except Exception as error:  # importing runs the module, which may raise anything
            raise BadRequest(f"{wrapper.module} cannot be imported: {reason(error)}", KEY) from error
        kind = getattr(module, wrapper.name, None)
        if not (isinstance(kind, type) and issubclass(kind, gymnasium.Wrapper)):
            near = nearest(wrapper.name, [name for name, each in vars(module).items() if _is_wrapper(each)])
            raise BadRequest(f"{wrapper.module} has no wrapper {wrapper.name}{near}", KEY)
        kinds_of_wrappers.append(kind)
    return kinds_of_wrappers


def _is_wrapper(value: object) -> bool:
    import gymnasium

    return isinstance(value, type) and issubclass(value, gymnasium.Wrapper)


def transform_only(wrappers: Sequence[Wrapper]) -> bool:
    """Whether wrappers change observations, actions or rewards and nothing else, so that steps stay as they are."""
    from gymnasium import ActionWrapper, ObservationWrapper, RewardWrapper

    return all(issubclass(kind, ObservationWrapper | ActionWrapper | RewardWrapper) for kind in kinds(wrappers))


def wrapped(env: Any, wrappers: Sequence[Wrapper]) -> Any:
    """The environment inside its wrappers, the last of them outside. Raises `BadRequest`."""
    for wrapper, kind in zip(wrappers, kinds(wrappers), strict=True):
        try:
            env = kind(env, **wrapper.kwargs)
        except Exception as error:
            env.close()
            raise BadRequest(f"{wrapper.name} cannot be made: {reason(error)}", KEY) from error
    return env
