"""Any environment registered with gymnasium, as a world.

The classic control tasks run as vectorised simulators with the same bits (`evorl.mdp.gymnasium.classic_control`),
everything else one environment a slot (`evorl.mdp.gymnasium.env_per_slot`), where an ended slot is reset with the key of
its own next episode; and what is registered as one environment of many rows, as that (`evorl.mdp.gymnasium.vector_env`).
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from inspect import signature
from typing import Any

from evorl.mdp.core import Arena, World, WorldError
from evorl.mdp.gymnasium.camera import Camera, draws
from evorl.mdp.gymnasium.classic_control import SIMULATORS, Simulated
from evorl.mdp.lockstep import Engine, Lockstep, shaped
from evorl.util import command
from evorl.util.errors import BadRequest, nearest, reason
from evorl.util.seed import Episodes
from evorl.util.types import Count

Scalar = bool | int | float | str | None

_EXTRAS = {
    "gymnasium.envs.mujoco": ("mujoco", ("mujoco",)),
    "gymnasium.envs.box2d": ("box2d", ("Box2D", "pygame")),
    "ale_py": ("atari", ("ale_py",)),
    "evorl.mdp.atari.game": ("atari", ("ale_py",)),
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
    vector: bool | None = None
    """Whether the id's own vector environment plays, all slots in one; null where there is nothing else."""
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
        return self.id in SIMULATORS and not self.kwargs and self.frame_skip == 1 and not self.vector

    @property
    def vectored(self) -> bool:
        """Whether the id's own vector environment plays. Raises `BadRequest` where ``vector`` asks for what is not."""
        spec = _registered(self.id)
        vector = spec.entry_point is None if self.vector is None else self.vector
        if vector and spec.vector_entry_point is None:
            raise BadRequest(f"{self.id} has no vector environment of its own", "vector")
        if not vector and spec.entry_point is None:
            raise BadRequest(f"{self.id} has nothing but its vector environment", "vector")
        return vector

    def imports(self) -> tuple[str, ...]:
        module = self.id.rpartition(":")[0]
        return (module.partition(".")[0],) if module else ()

    def ready(self) -> None:
        if self.simulated:
            return
        from evorl.mdp.gymnasium import spaces

        vectored = self.vectored
        env = self.make_vec(2) if vectored else self.make()
        try:
            spaces.observation(env.single_observation_space if vectored else env.observation_space)
            spaces.action(env.single_action_space if vectored else env.action_space)
        except spaces.Unsupported as error:
            raise BadRequest(f"{self.id} cannot be learnt here: {error} has no form here", "id") from error
        finally:
            env.close()
        if vectored:
            self._check_saved()

    def _check_saved(self) -> None:
        from evorl.mdp.gymnasium import probes

        if self.frame_skip > 1:
            raise BadRequest(
                f"{self.id} steps all its rows together, also those that end before a repeat", "frame_skip"
            )
        try:
            if not probes.own(self.make_vec):
                probes.check_saved(self.make_vec)
        except (probes.Unrepeatable, WorldError) as error:
            why = str(error).strip().splitlines()[-1]
            raise BadRequest(f"{self.id} has one generator for all slots and cannot be saved: {why}", "id") from error

    def capped(self, steps: int) -> World:
        if "max_episode_steps" in self.kwargs:
            raise BadRequest("max_episode_steps is a keyword of this environment; give mdp.time_limit instead")
        if _registered(self.id).additional_wrappers:
            raise BadRequest(f"{self.id} is registered with wrappers beyond its limit, which may count other steps")
        own = self.time_limit or _registered(self.id).max_episode_steps
        return replace(self, time_limit=min(steps, own or steps))

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        if not self.simulated and self.vectored:
            return self._vectored(slots, episodes)
        return Lockstep(self._engine(slots), slots, episodes, self.reward_scale, self.reward_clip)

    def _vectored(self, slots: int, episodes: Episodes) -> Arena:
        from evorl.mdp.gymnasium.probes import own
        from evorl.mdp.gymnasium.vector_env import Rows, Seeded, Shared

        rows = Rows(self.make_vec(slots), slots, self.time_limit)
        if own(self.make_vec):
            engine = Seeded(rows, partial(self._film, rows.env))
            return Lockstep(engine, slots, episodes, self.reward_scale, self.reward_clip)
        return Shared(
            rows,
            episodes,
            partial(shaped, self.reward_scale, self.reward_clip),
            partial(self.make_vec, slots, render_mode="rgb_array"),
        )

    def _film(self, vector: Any) -> Camera | None:
        """What draws an episode of a row: another vector environment, of one row, where such draw; else the id's
        ordinary environment, where that does."""
        from evorl.mdp.gymnasium.vector_env import Single

        if draws(vector):
            return Camera(lambda **extra: Single(self.make_vec(1, **extra)))
        if _registered(self.id).entry_point is None:
            return None
        with closing(self.make()) as env:
            return Camera(self.make, self._anew) if draws(env) else None

    def _engine(self, slots: int) -> Engine:
        if self.simulated:
            return Simulated(SIMULATORS[self.id], slots, self.time_limit, self.make)
        from evorl.mdp.gymnasium.env_per_slot import Stepped

        return Stepped(self.make, slots, self.frame_skip, self._anew)

    @property
    def _anew(self) -> bool:
        """Whether each episode needs an environment of its own."""
        return str(_registered(self.id).entry_point).startswith(_REMEMBER)

    def make(self, **extra: Any) -> Any:
        """Gymnasium's environment with its registered wrappers, but without those that only check its use."""
        import gymnasium

        spec = _registered(self.id)
        kwargs = {"max_episode_steps": self.time_limit, "disable_env_checker": True, **self.kwargs, **extra}
        with self._making(spec):
            return gymnasium.make(replace(spec, order_enforce=False), **kwargs)

    def make_vec(self, slots: int, **extra: Any) -> Any:
        """The id's own vector environment with so many rows, its autoreset disabled where it can be."""
        import gymnasium

        spec = _registered(self.id)
        with self._making(spec):
            warnings.filterwarnings("ignore", "(?s).*AutoresetMode")  # what is missing there is said below
            entry = spec.vector_entry_point
            entry = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
            kwargs = {**self._vector_options(entry), **self.kwargs, **extra}
            env = gymnasium.make_vec(spec, slots, vectorization_mode="vector_entry_point", **kwargs)
        try:
            self._check_resets(env, "max_episode_steps" in kwargs)
        except BadRequest:
            env.close()
            raise
        return env

    def _check_resets(self, env: Any, limited: bool) -> None:
        from gymnasium.vector import AutoresetMode

        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise BadRequest(f"{self.id} does not say when it resets itself (metadata's autoreset_mode)", "id")
        if mode is not AutoresetMode.DISABLED and self.time_limit is not None and not limited:
            raise BadRequest(f"{self.id} resets itself, and takes no limit (max_episode_steps)", "time_limit")

    def _vector_options(self, entry: Any) -> dict[str, Any]:
        """What we ask of a vector environment, as far as its signature says that it can be asked."""
        from gymnasium.vector import AutoresetMode

        wanted = {"autoreset_mode": AutoresetMode.DISABLED, "max_episode_steps": self.time_limit}
        return {name: x for name, x in wanted.items() if x is not None and name in signature(entry).parameters}

    @contextmanager
    def _making(self, spec: Any) -> Iterator[None]:
        """Raise `BadRequest` for whatever keeps an environment from being made."""
        import gymnasium

        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            with _hushed(spec):
                yield
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise _missing(self.id, str(spec.entry_point or spec.vector_entry_point), error) from error
        except Exception as error:
            key = "kwargs" if self.kwargs else "id"
            raise BadRequest(f"{self.id} cannot be made: {reason(error)}", key) from error


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
