"""Gymnasium environments as a world: registered ids, and environment classes that are not registered.

Three engines play them:

* `evorl.mdp.gymnasium.classic_control`: classic control tasks as vectorised simulators, with gymnasium's bits;
* `evorl.mdp.gymnasium.vector_env`: a vector environment, all slots in one;
* `evorl.mdp.gymnasium.env_per_slot`: everything else, one environment per slot.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from inspect import signature
from typing import Any, cast

from evorl.mdp.core import Arena, Array, World, WorldError
from evorl.mdp.forms import Mismatch
from evorl.mdp.gymnasium.camera import Camera, can_render
from evorl.mdp.gymnasium.classic_control import ACTIONS, FEATURES, SIMULATORS, ClassicControlEngine
from evorl.mdp.gymnasium.registry import environment_spec, not_runnable, quiet_construction
from evorl.mdp.gymnasium.wrappers import parsed, transform_only, wrapped
from evorl.mdp.lockstep import Engine, Lockstep, learner_reward
from evorl.mdp.random_play import check_asked
from evorl.mdp.spec import check_result_names
from evorl.util.errors import BadRequest, reason
from evorl.util.seed import Episodes
from evorl.util.types import Count, Fraction

Scalar = bool | int | float | str | None

_CARRY_STATE_OVER = ("gymnasium.envs.box2d.bipedal_walker", "gymnasium.envs.box2d.car_racing")
"""Entry points (their start) of environments that never renew their Box2D world: each episode changes the next one."""


@dataclass(frozen=True, kw_only=True)
class Gymnasium(World):
    """A gymnasium environment. One environment step is one ``env.step``.

    Each repeat of a frame skip counts as a step: in costs, episode lengths and time limits.
    """

    id: str
    """Registered id; ``module:id`` imports the module first; ``module:Class`` makes a class that is not registered."""
    kwargs: dict[str, Scalar] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    frame_skip: int | tuple[int, int] = 1  # not Count: msgspec 0.22 crashes on a union of such
    """How often each action is repeated, or [least, most] of which each episode draws one; the rewards are summed."""
    skip_gamma: Fraction = 1.0
    """Discount of the rewards within a repeat, per environment step; results report the raw return."""
    vector: bool | None = None
    """true: use the id's own vector environment, all slots in one; null: only if the id has no other environment."""
    time_limit: Count | None = None
    """Environment steps after which an episode is truncated; null: the registered limit (a class has none)."""
    action_masks: bool = True
    """Take only the legal actions, if the environment reports them: action_masks(), or info["action_mask"]."""
    wrappers: tuple[str | dict[str, dict[str, Any]], ...] = ()
    """Wrappers, the innermost first: Name of gymnasium.wrappers or module:Class; {Name: {key: value}} has keywords."""
    results: tuple[str, ...] = ()
    """Names of numbers in an episode's last info that are reported as results: is_success."""
    reward_scale: float = 1.0
    """Factor on the rewards that the learner receives; results report the raw return."""
    reward_clip: tuple[float, float] | None = None
    """Bounds [low, high] of the scaled rewards; null for none."""

    def __post_init__(self) -> None:
        if self.reward_clip is not None and not self.reward_clip[0] < self.reward_clip[1]:
            raise BadRequest(f"expected [low, high] with low < high, got {list(self.reward_clip)}", "reward_clip")
        if not 1 <= self._skip[0] <= self._skip[1]:
            raise BadRequest(f"expected an int >= 1, or [least, most] of such, got {self.frame_skip}", "frame_skip")
        if self.time_limit is not None and "max_episode_steps" in self.kwargs:
            raise BadRequest("max_episode_steps of mdp.kwargs is the limit already; give one of them", "time_limit")
        parsed(self.wrappers)
        check_result_names(self.results)

    @property
    def title(self) -> str:
        return self.id

    @property
    def _skip(self) -> tuple[int, int]:
        """The least and the most repeats of an action."""
        return self.frame_skip if isinstance(self.frame_skip, tuple) else (self.frame_skip, self.frame_skip)

    @property
    def simulated(self) -> bool:
        """Whether one of evorl's vectorised simulators plays this world."""
        plain = not (self.kwargs or self.vector or self.wrappers or self.results)
        return plain and self.id in SIMULATORS and self._skip == (1, 1)

    @property
    def uses_vector_env(self) -> bool:
        """Whether the id's own vector environment plays. Raises `BadRequest` if ``vector`` requires a missing one."""
        spec = environment_spec(self.id)
        vector = spec.entry_point is None if self.vector is None else self.vector
        if vector and spec.vector_entry_point is None:
            raise BadRequest(f"{self.id} has no vector environment of its own", "vector")
        if not vector and spec.entry_point is None:
            raise BadRequest(f"{self.id} has only a vector environment", "vector")
        return vector

    def imports(self) -> tuple[tuple[str, str], ...]:
        wrappers = [("wrappers", each.module) for each in parsed(self.wrappers) if not each.ours]
        modules = [("id", self.id.rpartition(":")[0]), *wrappers]
        return tuple((key, module.partition(".")[0]) for key, module in modules if module)

    def ready(self) -> None:
        if self.simulated:
            return
        from evorl.mdp.gymnasium import spaces

        vectored = self.uses_vector_env
        if vectored and (key := "wrappers" if self.wrappers else "results" if self.results else ""):
            raise BadRequest(f"{self.id} steps as a vector environment; mdp.vector=false may allow them", key)
        env = self.make_vec(2) if vectored else self.make()
        try:
            spaces.observation(env.single_observation_space if vectored else env.observation_space)
            spaces.action(env.single_action_space if vectored else env.action_space)
        except spaces.Unsupported as error:
            raise BadRequest(f"{self.id} cannot be used: evorl does not support {error}", "id") from error
        except AttributeError as error:  # a class that sets no spaces
            raise BadRequest(f"{self.id} cannot be used: {error}", "id") from error
        finally:
            env.close()
        if vectored:
            self._check_saved()

    def check_results(self) -> None:
        if self.results:
            check_asked(self)

    def _check_saved(self) -> None:
        from evorl.mdp.gymnasium import probes

        if self._skip[1] > 1:
            raise BadRequest(
                f"{self.id} steps all its rows together, so actions cannot be repeated for some rows only", "frame_skip"
            )
        try:
            if not probes.rows_are_independent(self.make_vec, self.action_masks):
                probes.check_resumable(self.make_vec, self.action_masks)
        except Mismatch as error:
            raise BadRequest(f"{self.id} cannot be used: {error}", "id") from error
        except (probes.NotResumable, WorldError) as error:
            why = str(error).strip().splitlines()[-1]
            raise BadRequest(f"{self.id} has one generator for all slots and cannot be saved: {why}", "id") from error

    def capped(self, steps: int) -> World:
        if "max_episode_steps" in self.kwargs:
            raise BadRequest("max_episode_steps is a keyword of this environment; give mdp.time_limit instead")
        if environment_spec(self.id).additional_wrappers:
            raise BadRequest(f"{self.id} is registered with additional wrappers, which may count steps differently")
        if not transform_only(parsed(self.wrappers)):
            raise BadRequest("some of them may count steps differently", "wrappers")
        return replace(self, time_limit=min(steps, self._limit or steps))

    @property
    def _limit(self) -> int | None:
        """Steps of the environment, of which a decision takes as many as an action is repeated."""
        return self.time_limit or cast(int | None, environment_spec(self.id).max_episode_steps)

    @property
    def longest_episode(self) -> int | None:
        steps, repeats = self._longest, self._skip[0]
        if steps is None or repeats == 1 or self._masked:
            return steps
        return -(-steps // repeats)

    @property
    def _longest(self) -> int | None:
        """Environment steps after which an episode is truncated at the latest; None if that is not known."""
        steps = self.kwargs.get("max_episode_steps", self._limit)
        counted = transform_only(parsed(self.wrappers)) and not environment_spec(self.id).additional_wrappers
        return steps if counted and isinstance(steps, int) else None

    @cached_property
    def _masked(self) -> bool:
        """Whether there are legal actions, which may end a repeat after a single step."""
        from evorl.mdp.gymnasium.probes import reports_masks

        return self.action_masks and reports_masks(self.make)

    @property
    def limited(self) -> bool:
        """False for a class that is not registered, which has no limit but ``time_limit``."""
        spec = environment_spec(self.id)
        return self._longest is not None or self.id not in (spec.entry_point, spec.vector_entry_point)

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        return {"observation": FEATURES[self.id]} if self.id in FEATURES and not self.wrappers else {}

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return (ACTIONS[self.id],) if self.id in ACTIONS and not self.wrappers else ()

    @property
    def seconds_per_step(self) -> float | None:
        """As the environment declares it (``render_fps`` of its metadata)."""
        alone = environment_spec(self.id).entry_point is not None
        with closing(self.make() if alone else self.make_vec(1)) as env:
            rate = env.metadata.get("render_fps")
        return 1 / rate if isinstance(rate, int | float) and rate > 0 else None

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        if not self.simulated and self.uses_vector_env:
            return self._vector_arena(slots, episodes)
        if self.simulated:
            engine: Engine = ClassicControlEngine(SIMULATORS[self.id], slots, self.time_limit, self.make)
            return Lockstep(engine, slots, episodes, self.reward_scale, self.reward_clip)
        from evorl.mdp.gymnasium.env_per_slot import EnvPerSlot

        own = self._new_env_per_episode, self.action_masks, self.results, self.skip_gamma
        each = EnvPerSlot(self.make, slots, self._skip, *own)
        return Lockstep(each, slots, episodes, self.reward_scale, self.reward_clip, each.results)

    def _vector_arena(self, slots: int, episodes: Episodes) -> Arena:
        from evorl.mdp.gymnasium.probes import rows_are_independent
        from evorl.mdp.gymnasium.shared_generator import SharedGeneratorArena
        from evorl.mdp.gymnasium.vector_env import SeededRowsEngine, VectorEnvRows

        rows = VectorEnvRows(self.make_vec(slots), slots, self.time_limit, self.action_masks)
        if rows_are_independent(self.make_vec, self.action_masks):
            engine = SeededRowsEngine(rows, partial(self._camera, rows.env))
            return Lockstep(engine, slots, episodes, self.reward_scale, self.reward_clip)
        return SharedGeneratorArena(
            rows,
            episodes,
            partial(learner_reward, self.reward_scale, self.reward_clip),
            partial(self.make_vec, slots, render_mode="rgb_array"),
        )

    def _camera(self, vector: Any) -> Camera | None:
        """Return a camera for episodes of a row: a vector environment of one row if it draws, else the id's ordinary
        environment if it draws, else None."""
        from evorl.mdp.gymnasium.vector_env import SingleRowEnv

        if can_render(vector):
            return Camera(lambda **extra: SingleRowEnv(self.make_vec(1, **extra)))
        if environment_spec(self.id).entry_point is None:
            return None
        with closing(self.make()) as env:
            return Camera(self.make, self._new_env_per_episode) if can_render(env) else None

    @property
    def _new_env_per_episode(self) -> bool:
        """Whether each episode needs a new environment."""
        return str(environment_spec(self.id).entry_point).startswith(_CARRY_STATE_OVER)

    def environment_spaces(self) -> tuple[Any, Any]:
        if self.uses_vector_env:
            with closing(self.make_vec(2)) as env:
                return env.single_observation_space, env.single_action_space
        with closing(self.make()) as env:
            return env.observation_space, env.action_space

    def environment_actions(self, side: int = 0) -> Callable[[Array], Array]:
        from evorl.mdp.gymnasium.spaces import encode_all

        return partial(encode_all, self.environment_spaces()[1])

    def make(self, **extra: Any) -> Any:
        """Make the environment with its registered wrappers and its own, without those that only check correct use."""
        import gymnasium

        spec = environment_spec(self.id)
        kwargs = {"max_episode_steps": self.time_limit, "disable_env_checker": True, **self.kwargs, **extra}
        with self._making(spec):
            env = gymnasium.make(replace(spec, order_enforce=False), **kwargs)
        return wrapped(env, parsed(self.wrappers))

    def make_vec(self, slots: int, **extra: Any) -> Any:
        """Make the id's own vector environment with ``slots`` rows; autoreset is disabled if it can be."""
        import gymnasium

        spec = environment_spec(self.id)
        with self._making(spec):
            warnings.filterwarnings("ignore", "(?s).*AutoresetMode")  # `_check_resets` reports a missing mode
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
            raise BadRequest(f"{self.id} does not declare when it resets itself (metadata's autoreset_mode)", "id")
        if mode is not AutoresetMode.DISABLED and self.time_limit is not None and not limited:
            raise BadRequest(f"{self.id} resets itself and takes no keyword max_episode_steps", "time_limit")

    def _vector_options(self, entry: Any) -> dict[str, Any]:
        """Return those of evorl's options that the vector environment's signature accepts."""
        from gymnasium.vector import AutoresetMode

        wanted = {"autoreset_mode": AutoresetMode.DISABLED, "max_episode_steps": self.time_limit}
        return {name: x for name, x in wanted.items() if x is not None and name in signature(entry).parameters}

    @contextmanager
    def _making(self, spec: Any) -> Iterator[None]:
        """Turn any error from making an environment into a `BadRequest`."""
        import gymnasium

        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            with quiet_construction(spec):
                yield
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise not_runnable(self.id, str(spec.entry_point or spec.vector_entry_point), error) from error
        except Exception as error:
            key = "kwargs" if self.kwargs or "argument" in str(error) else "id"
            raise BadRequest(f"{self.id} cannot be made: {reason(error)}", key) from error
