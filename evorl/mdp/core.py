"""What a world is: decision points handed out, answers taken back.

An author writes a world in one of two ways:

* as coroutines (`Battle`): each side awaits its own decisions, in its own time;
* as a vectorised simulator (`Arena`): all games step together in arrays.

The engine sees both as one `Arena`. Letters in shapes: B slots, R named rewards,
L legal-mask entries (all action heads side by side), K action components.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from numpy.typing import NDArray

from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes
from evorl.util.types import Count
from evorl.util.types import StateDict as StateDict  # part of what a world is written with

Array = NDArray[Any]
OWN = ("episodes", "episode_length", "stochastic_return")
"""What runs report beside a world's results, under ``train/`` and ``eval/``, and ``return_`` with a reward's name."""


class WorldError(RuntimeError):
    """A world failed for good; the message ends with its own traceback where it raised one."""


def check_name(name: object) -> None:
    """Raise `WorldError` for a name that no metric can have: of a reward, or of a result."""
    if not isinstance(name, str) or not re.fullmatch(r"[^/\s]+", name):
        raise WorldError(f"{name!r} is no name for a reward or a result: a word without spaces and slashes is")
    if name in OWN or name.startswith("return_"):
        raise WorldError(
            f"{name!r} is what every run calls something of its own; give a reward or a result another name"
        )


@dataclass(frozen=True)
class Input:
    """One named observation array of a state, without batch axis. uint8 [C, H, W] is an image."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Discrete:
    """One choice of n. Actions travel as int64 [B, 1]."""

    n: int


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, one of ``nvec[k]`` for component k. Actions travel as int64 [B, K]."""

    nvec: tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """A real vector within bounds (which may be infinite). Actions travel as float32 [B, K]."""

    low: tuple[float, ...]
    high: tuple[float, ...]


Action = Discrete | MultiDiscrete | Box


def heads(action: Action) -> tuple[int, ...]:
    """Sizes of the categorical heads of an action space; empty for a Box."""
    match action:
        case Discrete(n):
            return (n,)
        case MultiDiscrete(nvec):
            return nvec
        case Box():
            return ()


@dataclass(frozen=True)
class Spec:
    """The interface of one side of a world. Networks are built from it alone.

    ``masked`` says that every state carries a legal-action mask [L], L = sum(heads).
    ``players`` is the number of sides of a game.
    """

    inputs: tuple[Input, ...]
    action: Action
    rewards: tuple[str, ...] = ("reward",)
    players: int = 1
    masked: bool = False

    def __post_init__(self) -> None:
        for name in self.rewards:
            check_name(name)


# ------------------------------------------------------------------ worlds as coroutines


class State(NamedTuple):  # as Step a tuple: one is made at every decision, and a frozen dataclass costs thrice as much
    """What one side sees when it must decide."""

    inputs: tuple[Array, ...]
    legal: Array | None = None  # bool [L]


class Step(NamedTuple):
    """What happened to one side between two of its decisions.

    ``cost`` counts the environment steps (advances of the game) that passed.
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
        """What this side sees now; after a truncation, the state the episode was cut at."""
        ...

    async def __call__(self, action: Array) -> Step:
        """Act ([K]); return when this side must decide again, or when it is over."""
        ...

    def result(self) -> Mapping[str, float]:
        """Named results of the episode (fitness, win, score, ...), valid once it is over."""
        ...


class Battle(Protocol):
    """One episode. Entering starts its background tasks (ticks), leaving ends them."""

    @property
    def controllers(self) -> Sequence[Controller]:
        """One for each asked player, in the order asked."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class MDP(Protocol):
    """A factory of battles. A battle may also have ``render() -> uint8 [H, W, 3]``."""

    @property
    def spec(self) -> Spec: ...

    def reset(self, *players: int, seed: int) -> Battle:
        """Begin an episode in which we decide for ``players``; the world drives the other sides."""
        ...

    def close(self) -> None: ...


# ------------------------------------------------------------------ what the engine sees


@dataclass
class Decisions:
    """The slots that wait for an action now, and what became of their last one.

    Arrays are full width (B rows) and owned by the arena; only the rows in ``slots`` are new, and the row of a
    slot that waits stays as it is until that slot is answered. A slot whose episode ended has
    already begun its next one: ``inputs`` shows the new episode's first state, ``final``
    the state where a truncated episode was cut (valid where ``truncated``).
    Before a slot's very first answer its reward is 0 and its ends are False.
    """

    slots: Array  # int64 [K], rising: the rows that wait
    inputs: tuple[Array, ...]  # each [B, ...]
    legal: Array | None  # bool [B, L]
    reward: Array  # float32 [B, R]
    terminated: Array  # bool [B]
    truncated: Array  # bool [B]
    final: tuple[Array, ...]  # each [B, ...]
    final_legal: Array | None = None
    results: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # ended slots' named results
    cost: int = 0  # environment steps since the last recv: an advance of a game counts once for all its sides


class Arena(Protocol):
    """Many episodes at once. A lockstep simulator returns all slots from every `recv`.

    ``sides``, P, is the world's own: slots g*P .. g*P+P-1 belong to game g. Where they decide each in its
    own time, one of them may have to act before another can go on. An arena that is a `Filmed` shows ends as well.
    """

    spec: Spec
    slots: int
    sides: int

    def recv(self) -> Decisions:
        """Wait until at least one slot must decide; return all that do."""
        ...

    def send(self, slots: Array, actions: Array) -> None:
        """Answer the given slots with actions [len(slots), K]."""
        ...

    def render(self, slot: int = 0) -> Array | None:
        """The slot's picture, uint8 [H, W, 3], or None for a world that draws nothing."""
        ...

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly; only when all slots wait (each has been received)."""
        ...

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from a state; the next `recv` returns every slot, with zero reward and no ends."""
        ...

    def close(self) -> None: ...


class Filmed:
    """An arena that lets one look at an episode's last picture, before the next one begins in its place."""

    at_end: Callable[[], None] | None = None
    """Called where episodes have ended, as `render` still draws them."""

    def _ended(self) -> None:
        if self.at_end is not None:
            self.at_end()


class Resting(ABC):
    """An arena that may be told which slots are needed no more."""

    @abstractmethod
    def rest(self, slot: int) -> None:
        """Step this slot no more where that costs something: it then shows what it showed last, and never ends."""


class Tied:
    """An arena whose slots go on together or not at all, though not all of them always wait: whoever waits is to be
    answered before the next `recv`."""


@dataclass(frozen=True, kw_only=True)
class World(ABC):
    """The config of a world: each field is a Hydra key of its file in ``conf/mdp``.

    A vectorised world overrides `arena`. One written as battles derives from `evorl.mdp.arena.BattleWorld`.
    """

    budget: Count = 1_000_000
    """Environment steps a run trains for when ``budget.steps`` is not given."""

    def ready(self) -> None:  # noqa: B027 (most worlds are always ready)
        """Raise `BadRequest` when this world cannot run here: unknown id, extra not installed. Cheap."""

    def imports(self) -> tuple[str, ...]:
        """Root modules that this config, rather than its class, has imported: only those trusted are."""
        return ()

    @property
    def sides(self) -> int:
        """Sides of a game that the learner decides for: as many slots share one game."""
        return 1

    def close(self) -> None:  # noqa: B027 (most worlds hold nothing)
        """Let go of what the world holds beyond its arenas, such as a connection; once, after which it is not used."""

    def judge(self) -> World:
        """The world that evaluations play: this one, unless training plays both sides of a game."""
        return self

    def capped(self, steps: int) -> World:
        """The world whose episodes end after so many environment steps at the latest, truncated; it is not closed, and
        holds nothing that this one does not. Raises `BadRequest` where episodes have no such limit."""
        raise BadRequest(f"episodes of {type(self).__name__} have no limit in environment steps")

    @abstractmethod
    def arena(self, slots: int, episodes: Episodes) -> Arena:
        """Start ``slots`` episodes at once; slot s plays the keys episodes(s, 0), episodes(s, 1), ...

        Raises `BadRequest` for a world without episodes, which only an evolution can use: `evorl.mdp.problem`.
        """
