"""The interface of a world: it returns observations at decision points and receives actions.

A world is written in one of two ways:

* as coroutines (`Battle`): each side awaits its own decisions, at its own times;
* as a vectorised simulator (`Arena`): all games step together in arrays.

Training and evaluation use both through `Arena`. Letters in shapes: B slots, R named rewards,
L entries of the legal-action mask (all action heads side by side), K action components.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from numpy.typing import NDArray

from evorl.mdp.labels import Labels
from evorl.mdp.spec import RESERVED_NAMES as RESERVED_NAMES
from evorl.mdp.spec import Action as Action
from evorl.mdp.spec import Box as Box
from evorl.mdp.spec import Discrete as Discrete
from evorl.mdp.spec import EpisodeFailed as EpisodeFailed
from evorl.mdp.spec import Input as Input
from evorl.mdp.spec import MultiDiscrete as MultiDiscrete
from evorl.mdp.spec import SideSpec as SideSpec
from evorl.mdp.spec import Spec as Spec
from evorl.mdp.spec import WorldError as WorldError
from evorl.mdp.spec import check_name as check_name
from evorl.mdp.spec import first_choices as first_choices
from evorl.mdp.spec import heads as heads
from evorl.util.closes import Closes as Closes  # as StateDict
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes
from evorl.util.types import Count, Fraction
from evorl.util.types import StateDict as StateDict  # re-exported for authors of worlds

Array = NDArray[Any]


# ------------------------------------------------------------------ worlds as coroutines


class State(NamedTuple):  # a tuple, as Step: one per decision, and a frozen dataclass costs three times as much
    """The observation of one side at a decision."""

    inputs: tuple[Array, ...]
    legal: Array | None = None  # bool [L]


class Step(NamedTuple):
    """The outcome of one side's action, up to its next decision.

    ``cost`` is the number of environment steps (advances of the game) in between.
    """

    reward: Array  # float [R]
    terminated: bool = False
    truncated: bool = False
    cost: int = 1

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


class Controller(Protocol):
    """One side of a battle."""

    @property
    def state(self) -> State:
        """The current observation; after a truncation, the last state of the episode."""
        ...

    async def __call__(self, action: Array) -> Step:
        """Take an action [K]; return when this side must decide again, or when its episode is over."""
        ...

    def result(self) -> Mapping[str, float]:
        """Return named results of the episode (fitness, win, score, ...); valid once it is over."""
        ...


class Battle(Protocol):
    """One episode. ``async with`` starts its background tasks (ticks) and ends them."""

    @property
    def controllers(self) -> Sequence[Controller]:
        """One controller per player given to `reset`, in that order."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class MDP(Protocol):
    """A factory of battles.

    For films, a battle may also have ``render() -> uint8 [H, W, 3]``; ``on_frame``, None or a function that it calls
    when it has something new to draw between two decisions; and ``seconds``, the time in the game since its start.

    It may have ``channels_last``: names of the pictures [C, H, W] that its battles show with channels last in memory.
    Then the arena keeps this order: a copy takes a tenth of the time, and `evorl.nets.encoders` reads it as it is.
    """

    @property
    def spec(self) -> Spec: ...

    def reset(self, *players: int, seed: int) -> Battle:
        """Start an episode in which the caller decides for ``players``; the world controls the other sides."""
        ...

    def close(self) -> None: ...


# ------------------------------------------------------------------ worlds as arrays


@dataclass
class Decisions:
    """The slots that wait for an action, and the outcomes of their last actions.

    Arrays have B rows and belong to the arena. Only the rows in ``slots`` are new; the row of a waiting slot does not
    change until that slot receives an action. A slot whose episode ended has already started its next one: ``inputs``
    holds the new episode's first state, and ``final`` the last state of a truncated episode (valid only where
    ``truncated``). Before a slot's first action its reward is 0 and its ends are False.

    A slot in ``failed`` has not taken its last action, because its world failed. Its episode has started again:
    ``inputs`` holds the first state, the reward is 0 and the ends are False. Readers forget that decision.
    """

    slots: Array  # int64 [n], ascending: the rows that wait
    inputs: tuple[Array, ...]  # each [B, ...]
    legal: Array | None  # bool [B, L]
    reward: Array  # float32 [B, R]
    terminated: Array  # bool [B]
    truncated: Array  # bool [B]
    final: tuple[Array, ...]  # each [B, ...]
    final_legal: Array | None = None
    results: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # (slot, named results) of ended episodes
    cost: int = 0  # environment steps since the last recv; an advance of a game counts once for all its sides
    failed: list[int] = field(default_factory=list)  # those of ``slots`` whose world failed, ascending


class Arena(Closes, Protocol):
    """Many episodes at once. A lockstep simulator returns all slots from every `recv`; ``with`` closes the arena.

    ``sides``, P, is the world's number of controlled sides: slots g*P .. g*P+P-1 belong to game g. If sides decide at
    different times, one of them may have to act before another can go on. Optional mixins: `EpisodeEndHook`,
    `StoppableSlots`, `StepsTogether`, `SavedAtAnyTime`.
    """

    spec: Spec
    slots: int
    sides: int

    def recv(self) -> Decisions:
        """Wait until at least one slot must decide; return all waiting slots."""
        ...

    def send(self, slots: Array, actions: Array) -> None:
        """Give actions [len(slots), K] to the given slots."""
        ...

    def render(self, slot: int = 0) -> Array | None:
        """Return a picture of the slot's game, uint8 [H, W, 3]; None if the world draws nothing."""
        ...

    def state_dict(self) -> StateDict:
        """Return everything needed to continue bit for bit; only while all slots wait (all were received)."""
        ...

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a state; the next `recv` returns every slot, with zero reward and no ends."""
        ...

    def close(self) -> None: ...


class EpisodeEndHook:
    """Mixin of an arena that calls ``on_episode_end`` before the next episode replaces an ended one.

    So a film can include an episode's last picture.
    """

    on_episode_end: Callable[[], None] | None = None
    """Called when episodes have ended and `render` still draws them."""

    def _notify_episode_end(self) -> None:
        if self.on_episode_end is not None:
            self.on_episode_end()


class StepLimit:
    """Mixin of an arena that can truncate episodes which would never end, as evaluations need it."""

    step_limit: int | None = None
    """Environment steps after which an episode is truncated; None for no limit. Set it before the first `recv`."""
    cut: tuple[tuple[int, int], ...] = ()
    """Slot and number of each episode that was truncated by ``step_limit``."""


class FrameHook:
    """Mixin of an arena whose games may be filmed between decisions, and may have a clock."""

    on_frame: Callable[[], None] | None = None
    """Called when `render` draws something new, without a decision. Games that run already call it
    as soon as it is set, since what is around the arena may have begun them (`evorl.mdp.result_features`)."""

    def seconds(self, slot: int = 0) -> float | None:
        """Return the time in the slot's game since its start; None if it has no clock."""
        return None


class StoppableSlots(ABC):
    """Mixin of an arena that can stop stepping slots whose episodes are no longer needed."""

    @abstractmethod
    def stop_slot(self, slot: int) -> None:
        """Stop stepping this slot if that saves time. It then keeps its last observation and never ends."""


class StepsTogether:
    """Mixin of an arena whose slots step together: all waiting slots need an action before the next `recv`.

    A lockstep arena needs it if actions may be repeated in it (`evorl.mdp.frame_skip`), if its world can fail
    (`Decisions.failed`), or if not all slots wait at every `recv`.
    """


class ResultsSoFar(ABC):
    """Mixin of an arena that has the results of running games."""

    @abstractmethod
    def results_so_far(self, slot: int) -> Mapping[str, float]:
        """The results that the slot's episode would have if it ended now, for a slot that waits; empty: unknown."""


class SavedAtAnyTime:
    """Mixin of an arena whose `state_dict` may be called after any `recv`, before the next `send`.

    Some slots need not wait then.

    The first `recv` after a load returns the slots that waited when the state was saved, and no others.
    """


@dataclass(frozen=True, kw_only=True)
class World(Labels, ABC):
    """The config of a world. Each field is a Hydra key of the world's file in ``conf/mdp``.

    A vectorised world implements `arena`. A world of battles derives from `evorl.mdp.arena.BattleWorld`.
    """

    budget: Count = 1_000_000
    """Environment steps of a run if ``budget.steps`` is not given."""
    frame_skip: int | tuple[int, int] = 1  # not Count: msgspec 0.22 crashes on a union of such
    """How often each action is taken, or [least, most] of which each episode draws one; the rewards are summed."""
    skip_gamma: Fraction = 1.0
    """Discount of the rewards within a repeat, from one to the next."""
    features: tuple[str, ...] = ()
    """Results of the game so far that a side observes, by name, in a further row."""
    tell_side: bool = False
    """Whether an observation tells which side it is, in a further row; rl.policies sets it."""

    def ready(self) -> None:
        """Raise `BadRequest` if this world cannot run: unknown id, missing extra. Must be fast."""

    def check_results(self) -> None:
        """Raise `BadRequest` for a name in the config of a result that a random episode does not report."""

    def imports(self) -> tuple[tuple[str, str], ...]:
        """Return (key, root module) of what this config's values import. The run is refused unless each is trusted."""
        return ()

    @property
    def alone(self) -> str:
        """Why one process alone can play this world; empty: any number of processes can."""
        return ""

    @property
    def repeats(self) -> bool:
        """Whether the same key and the same actions repeat an episode."""
        return True

    def commands(self) -> tuple[str, ...]:
        """Return the commands that this config starts. The run is refused unless each is on its command line."""
        return ()

    @property
    def title(self) -> str:
        """What messages and pages call the game."""
        return type(self).__name__

    @property
    def sides(self) -> int:
        """Sides of a game that the learner controls; this many slots share one game."""
        return 1

    @property
    def team_sides(self) -> int:
        """Sides of a team, which follow one another. Against opponents a policy plays a whole team."""
        return 1

    @property
    def zero_sum(self) -> bool | None:
        """Whether one side earns what the others lose, up to a constant; None if that is not known."""
        return None

    @property
    def seconds_per_step(self) -> float | None:
        """Time in the game that an environment step takes, with which films run; None if the game has no clock."""
        return None

    @property
    def side_names(self) -> tuple[str, ...]:
        """What a viewer of a film calls each side of the game: ``("left", "right")``; empty if that is not needed."""
        return ()

    def players(self, seed: int) -> tuple[int, ...]:
        """Return the learner's sides in the episode with this key: always the same number; all sides by default."""
        return tuple(range(self.sides))

    def all_sides(self) -> World:
        """This world with every side of a game decided by the caller, as games between policies need it.

        Raises `BadRequest` if its games have one side.
        """
        raise BadRequest(f"the games of {self.title} have one side, so no opponent")

    def one_side(self, side: int) -> World:
        """This world with the caller deciding for this side of every game, and its rule player for the others.

        Raises `BadRequest` if it has no rule player.
        """
        raise BadRequest(f"{self.title} has no rule player")

    @property
    def takes_rule_action(self) -> bool:
        """Whether the rule player decides for a side of `all_sides` that takes the action of `rule_actions`."""
        return False

    @property
    def longest_episode(self) -> int | None:
        """Decisions after which an episode is truncated at the latest; None if that is not known."""
        return None

    @property
    def limited(self) -> bool:
        """Whether every episode ends, as far as the world can tell."""
        return True

    def environment_spaces(self) -> tuple[Any, Any] | None:
        """The gymnasium spaces of observations and actions; None for a world that is no gymnasium environment."""
        return None

    def environment_actions(self, side: int = 0) -> Callable[[Array], Array]:
        """Return what turns actions [B, K] into those that the environment takes of a side, a row for each.

        It may count its choices from another number than 0. Here actions stay as they are.
        """
        return lambda actions: actions

    def close(self) -> None:
        """Release what the world holds beyond its arenas, e.g. a connection. Called once, at the end."""

    def hold(self) -> Callable[[], None]:
        """Keep open what worlds of these keys share in this process, until the returned function is called.

        It begins nothing. Whoever closes copies of a world in turn holds it, or each copy would begin anew.
        """
        return lambda: None

    def evaluation_world(self) -> World:
        """The world that evaluations play: this one, unless training plays both sides of a game."""
        return self

    def capped(self, steps: int) -> World:
        """Return this world with episodes truncated after at most ``steps`` environment steps.

        It is never closed and must hold nothing that this world does not. Raises `BadRequest` without such a limit.
        """
        raise BadRequest(f"episodes of {self.title} cannot be cut after a number of environment steps")

    @abstractmethod
    def arena(self, slots: int, episodes: Episodes) -> Arena:
        """Start ``slots`` episodes; slot s plays the keys episodes(s, 0), episodes(s, 1), ...

        Raises `BadRequest` for a world without episodes (`evorl.mdp.problem`), which only evolution can use.
        """
