"""The config of PettingZoo's environments."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import MDP, Array, Spec
from evorl.mdp.pettingzoo.registry import LIBRARIES, Interface, Scalar, known_as, make
from evorl.mdp.random_play import check_asked
from evorl.mdp.spec import check_result_names
from evorl.mdp.turns import IN_TURNS, RandomPlayer, TurnBattle
from evorl.util.errors import BadRequest, nearest_or_all, reason
from evorl.util.seed import below
from evorl.util.types import Count

if TYPE_CHECKING:
    from evorl.mdp.pettingzoo.form import Form

Player = Literal["self", "random"]


@dataclass(frozen=True, kw_only=True)
class PettingZoo(BattleWorld):
    """An environment of several agents, of which each is a side. Needs the extra pettingzoo.

    An environment step is a step of all agents at once, or in turns that of one agent.
    """

    id: str
    """Module of the environment (``mpe2.simple_spread_v3``), or ``module:function``."""
    kwargs: dict[str, Scalar] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    interface: Interface | None = None
    """parallel: all agents decide at once; aec: in turns; null: parallel if the environment has it."""
    wrappers: tuple[str, ...] = ()
    """``module:Class`` of wrappers, the innermost first."""
    results: tuple[str, ...] = ()
    """Names of numbers in an agent's last info that are reported as results."""
    opponent: Player = "self"
    """Player of the other agents; self: the learner plays all; random: at random among legal actions."""
    side: str | None = None
    """The learner's agent with opponent=random; null: drawn per episode."""
    evaluation: Player = "self"
    """Player of the other agents in evaluations of a learner that plays all."""
    budget: Count = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if "." not in self.id and ":" not in self.id and (meant := known_as(self.id)):
            raise BadRequest(f"there is no {self.id}; did you mean {meant}?", "id")
        if self.side is not None and self.opponent == "self":
            raise BadRequest(f"{self.side} contradicts opponent=self, which plays all sides", "side")
        check_result_names(self.results)

    def imports(self) -> tuple[tuple[str, str], ...]:
        names = [("id", self.id), *(("wrappers", name) for name in self.wrappers)]
        roots = [(key, name.partition(":")[0].partition(".")[0]) for key, name in names]
        return tuple((key, root) for key, root in roots if root not in LIBRARIES)

    def ready(self) -> None:
        names = self.side_names
        if self.side is not None and self.side not in names:
            raise BadRequest(f"{self.id} has no agent {self.side}{nearest_or_all(self.side, names)}", "side")
        if self.frame_skip != 1 and self.traits.in_turns:
            raise BadRequest(IN_TURNS, "frame_skip")

    def check_results(self) -> None:
        if self.results:
            check_asked(self)

    @property
    def title(self) -> str:
        return self.id

    @property
    def traits(self) -> Traits:
        """The properties of the environment. Raises `BadRequest` if it cannot be made or used."""
        return _traits(self.id, tuple(sorted(self.kwargs.items())), self.wrappers, self.interface)

    @property
    def form(self) -> Form:
        """What all agents observe and do."""
        return self.traits.form

    @property
    def spec(self) -> Spec:
        return self.form.spec

    @property
    def seconds_per_step(self) -> float | None:
        rate = self.traits.rate
        return None if rate is None else 1 / rate

    @property
    def draws(self) -> bool:
        return self.traits.draws

    @property
    def side_names(self) -> tuple[str, ...]:
        return tuple(agent.name for agent in self.form.agents)

    def players(self, seed: int) -> tuple[int, ...]:
        names = self.side_names
        if self.opponent == "self":
            return tuple(range(len(names)))
        return (below(seed, len(names)) if self.side is None else names.index(self.side),)

    def evaluation_world(self) -> PettingZoo:
        return replace(self, opponent="random") if self.opponent == "self" and self.evaluation == "random" else self

    def all_sides(self) -> PettingZoo:
        if len(self.side_names) == 1:
            raise BadRequest(f"{self.id} has one agent, so no opponent")
        return replace(self, opponent="self", side=None)

    def one_side(self, side: int) -> PettingZoo:
        return replace(self, opponent="random", side=self.side_names[side])

    def battles(self) -> MDP:
        return PettingZooBattles(self)

    def reset(self, *players: int, seed: int) -> TurnBattle:
        return PettingZooBattles(self, keeps=False).reset(*players, seed=seed)

    def environment_actions(self, side: int = 0) -> Callable[[Array], Array]:
        from evorl.mdp.gymnasium.spaces import encode_all

        form = self.form
        return lambda actions: encode_all(form.agents[side].actions, form.own_action(side, actions))

    def make(self, **extra: Any) -> Any:
        """Make the environment within its wrappers. Raises `BadRequest`."""
        return make(self.id, self.kwargs, self.wrappers, self.interface, **extra)


class PettingZooBattles:
    """The battles of an arena. An environment is used again after its episode, unless it failed or remembers.

    ``keeps``: False for a single battle, after which its environment is closed.
    """

    def __init__(self, world: PettingZoo, keeps: bool = True) -> None:
        self.world, self.spec, self.channels_last = world, world.spec, world.form.channels_last
        self._keeps = keeps and world.traits.reusable
        self._idle: list[Any] = []

    def reset(self, *players: int, seed: int) -> TurnBattle:
        from evorl.mdp.pettingzoo.games import close_broken, kind_of

        world, spec, traits = self.world, self.spec, self.world.traits
        env = self._idle.pop() if self._idle else world.make()
        draw = partial(world.make, render_mode="rgb_array") if traits.draws else None
        try:
            game = kind_of(env)(env, traits.form, seed, world.results, self._give_back, draw)
            return TurnBattle(game, players, RandomPlayer(seed, spec) if len(players) < spec.players else None)
        except BaseException:
            close_broken(env)  # there is no battle that would
            raise

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _give_back(self, env: Any) -> None:
        if self._keeps:
            self._idle.append(env)
        else:
            env.close()


class Traits(NamedTuple):
    """The properties of an environment, known once it is made."""

    form: Form
    reusable: bool
    """Whether an episode does not depend on the one before it in the same environment."""
    draws: bool
    rate: float | None
    """Steps per second of a film."""
    in_turns: bool


@lru_cache(maxsize=8)
def _traits(
    id: str, kwargs: tuple[tuple[str, Scalar], ...], wrappers: tuple[str, ...], interface: Interface | None
) -> Traits:
    env = make(id, dict(kwargs), wrappers, interface)
    from pettingzoo import AECEnv, ParallelEnv

    from evorl.mdp.pettingzoo.form import form_of
    from evorl.mdp.pettingzoo.games import carries_state_over

    if not isinstance(env, AECEnv | ParallelEnv):
        raise BadRequest(f"{id} makes {type(env).__name__}, which is no environment of PettingZoo", "id")
    try:
        with closing(env):
            form, modes, rate = form_of(id, env), env.metadata.get("render_modes", ()), env.metadata.get("render_fps")
        carries = carries_state_over(form, lambda: make(id, dict(kwargs), wrappers, interface))
    except BadRequest:
        raise
    except Exception as error:  # of its spaces, or of an episode
        raise BadRequest(f"{id} cannot be used: {reason(error)}", "id") from error
    rate = float(rate) if isinstance(rate, int | float) and rate > 0 else None
    return Traits(form, not carries, "rgb_array" in modes, rate, isinstance(env, AECEnv))
