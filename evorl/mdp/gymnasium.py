"""Any environment registered with gymnasium, as a world.

The classic control tasks run as vectorised simulators of ours with the same bits
(`evorl.mdp.simulators`), everything else one environment a slot (`evorl.mdp.stepped`).
Gymnasium's autoreset plays no part: an ended slot is reset with the key of its own next episode.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from evorl.mdp.core import Arena, World
from evorl.mdp.lockstep import Engine, Lockstep
from evorl.mdp.simulators import SIMULATORS, Simulated
from evorl.util import command
from evorl.util.errors import BadRequest, nearest
from evorl.util.seed import Episodes
from evorl.util.types import Count

Scalar = bool | int | float | str | None

_EXTRAS = {
    "gymnasium.envs.mujoco": ("mujoco", ("mujoco",)),
    "gymnasium.envs.box2d": ("box2d", ("Box2D", "pygame")),
    "ale_py": ("atari", ("ale_py",)),
}
"""Environments by the start of their entry point: the extra of ours they need, and the modules it brings."""

_REMEMBER = ("gymnasium.envs.box2d.bipedal_walker", "gymnasium.envs.box2d.car_racing")
"""Environments (by the start of their entry point) that never renew their Box2D world: each episode leaves a trace."""


@dataclass(frozen=True, kw_only=True)
class Gymnasium(World):
    """An environment step is one ``env.step``: each repeat of a frame skip counts, in costs, lengths and limits."""

    id: str = "CartPole-v1"
    """As registered; ``module:id`` imports the module that registers it first."""
    kwargs: dict[str, Scalar] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    frame_skip: Count = 1
    """Times each action is repeated; the rewards are added up."""
    time_limit: Count | None = None
    """Environment steps after which an episode is truncated; null keeps the registered limit."""
    reward_scale: float = 1.0
    """Factor on the rewards the learner sees; results report the raw return."""
    reward_clip: tuple[float, float] | None = None
    """Bounds [low, high] on the scaled rewards; null for none."""

    def __post_init__(self) -> None:
        if self.reward_clip is not None and not self.reward_clip[0] < self.reward_clip[1]:
            raise BadRequest(f"expected [low, high] with low < high, got {list(self.reward_clip)}", "reward_clip")

    @property
    def simulated(self) -> bool:
        """Whether a simulator of ours plays this world."""
        return self.id in SIMULATORS and not self.kwargs and self.frame_skip == 1

    def imports(self) -> tuple[str, ...]:
        module = self.id.rpartition(":")[0]
        return (module.partition(".")[0],) if module else ()

    def ready(self) -> None:
        if self.simulated:
            return
        from evorl.mdp import spaces

        env = self.make()
        try:
            spaces.observation(env.observation_space)
            spaces.action(env.action_space)
        except spaces.Unsupported as error:
            raise BadRequest(f"{self.id} cannot be learnt here: {error} has no form here", "id") from error
        finally:
            env.close()

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        return Lockstep(self._engine(slots), slots, episodes, self.reward_scale, self.reward_clip)

    def _engine(self, slots: int) -> Engine:
        if self.simulated:
            return Simulated(SIMULATORS[self.id], slots, self.time_limit, self.make)
        from evorl.mdp.stepped import Stepped

        anew = str(_registered(self.id).entry_point).startswith(_REMEMBER)
        return Stepped(self.make, slots, self.frame_skip, anew)

    def make(self, **extra: Any) -> Any:
        """Gymnasium's environment with its registered wrappers, but without those that only check its use."""
        import gymnasium

        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        spec = _registered(self.id)
        kwargs = {"max_episode_steps": self.time_limit, "disable_env_checker": True, **self.kwargs, **extra}
        try:
            with _hushed(spec):
                return gymnasium.make(replace(spec, order_enforce=False), **kwargs)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise _missing(self.id, str(spec.entry_point), error) from error
        except Exception as error:
            key = "kwargs" if self.kwargs else "id"
            raise BadRequest(f"{self.id} cannot be made: {type(error).__name__}: {error}", key) from error


def _registered(id: str) -> Any:
    """Gymnasium's spec of an id, after importing the module that registers it."""
    import gymnasium

    module, _, name = id.rpartition(":")
    module = module or ("ale_py" if name.startswith("ALE/") else "")
    if module:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever that module does
            raise _missing(id, module, error) from error
    if name not in gymnasium.registry:
        raise BadRequest(f"{id} is not registered with gymnasium{nearest(name, gymnasium.registry)}", "id")
    return gymnasium.registry[name]


def _missing(id: str, entry: str, error: Exception) -> BadRequest:
    """What to install; or, where nothing of ours is missing, gymnasium's own words and a newer version of the id."""
    for start, (extra, modules) in _EXTRAS.items():
        if entry.startswith(start) and any(find_spec(module) is None for module in modules):
            return BadRequest(f"{id} needs more than is installed: {command.install(extra)}", "id")
    return BadRequest(f"{id} does not run here: {error}{_newer(id)}", "id")


def _newer(id: str) -> str:
    from gymnasium.envs import registration

    name = id.rpartition(":")[2]
    if name not in registration.registry:
        return ""
    space, name, version = registration.parse_env_id(name)
    latest = registration.find_highest_version(space, name)
    return "" if latest in (None, version) else f"; did you mean {registration.get_env_id(space, name, latest)}?"


@contextmanager
def _hushed(spec: Any) -> Iterator[None]:
    """Keep quiet, while an environment is made, about what its author must mend.

    MuJoCo 4 finds outdated attributes in gymnasium's models (and is forbidden its log file for good);
    Box2D's bindings warn of their own types, and crash the interpreter where warnings are errors.
    """
    log = _mujoco_log() if str(spec.entry_point).startswith("gymnasium.envs.mujoco") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if log is not None:
            log(False)
        try:
            yield
        finally:
            if log is not None:
                log(True)


def _mujoco_log() -> Callable[[bool], None] | None:
    """Switches MuJoCo's messages on the console, and its log file off; None before MuJoCo 4."""
    mujoco = importlib.import_module("mujoco")

    def switch(console: bool) -> None:
        config = mujoco.MjLogConfig.get()
        config.logto_console, config.logto_file = console, False
        mujoco.MjLogConfig.set(config)

    return switch if hasattr(mujoco, "MjLogConfig") else None
