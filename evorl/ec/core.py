"""The interface of every evolver, and the data that it exchanges.

An evolver proposes individuals (`Evolver.ask`) and learns from their evaluations (`Evolver.tell`). It never runs
anything, and knows neither worlds nor learners. Objectives are always maximised. Letters in shapes: N individuals,
M objectives, G genes, D weights, E episodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from evorl.ec.reward import EvolvedReward
from evorl.ec.space import Coordinates, Space
from evorl.ec.space_change import SpaceChange
from evorl.util.errors import BadRequest, nearest
from evorl.util.types import Count, StateDict

if TYPE_CHECKING:
    from evorl.ec.seeding import Seeded

Metrics = dict[str, float]
Objectives = NDArray[np.float64]
Objective = str | dict[str, float]
"""A result to maximise, or a weighted sum {name: weight} of such."""


class Individual(NamedTuple):
    """A proposal: what to evaluate."""

    id: int
    genes: Coordinates  # [G] coordinates of the space
    weights: NDArray[np.float32] | None = None  # [D]
    parents: tuple[int, ...] = ()
    birth: int = 0  # evaluations that its evolver had been told of
    role: str = ""  # its origin: initial, child, survivor, elite, ...
    memory: StateDict | None = None  # other state: statistics of its inputs, an optimiser's state, its cap


class Evaluation(NamedTuple):
    """The result of evaluating an individual, which carries the weights that it ended with."""

    individual: Individual
    objectives: tuple[float, ...]  # [M]; NaN where it failed
    cost: int = 0  # environment steps
    result: Mapping[str, NDArray[Any]] = {}  # of each episode [E], by name


class Evolver(Protocol):
    """Proposes and learns; state to checkpoint, no loop."""

    @property
    def population(self) -> Sequence[Evaluation]:
        """The individuals that the next proposals come from."""
        ...

    @property
    def generation(self) -> int:
        """Number of generations that it has learned from. Shared state changes only with it."""
        ...

    @property
    def due(self) -> Set[int]:
        """The ids that `ask` has returned and `tell` has not yet received."""
        ...

    def ask(self, limit: int | None = None) -> list[Individual]:
        """At most ``limit`` new proposals; none while it waits for evaluations (a generation's barrier)."""
        ...

    def tell(self, evaluations: Sequence[Evaluation]) -> Metrics:
        """Learn from evaluations of what was asked, in any number and order."""
        ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None: ...

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        """The state of such a search, moved from its space into the space of this one. Individuals that are no longer
        `due` in the moved state are not evaluated."""
        ...


@runtime_checkable
class Collecting(Protocol):
    """An evolver that learns from several evaluations at once, and keeps them until then."""

    @property
    def arrived(self) -> Sequence[Evaluation]:
        """The evaluations that it has not learned from yet."""
        ...


@dataclass(frozen=True, kw_only=True)
class Evolution(ABC):
    """Hyper-parameters that every evolver has; each field is a Hydra key of its ``conf/ec`` file."""

    several: ClassVar[bool] = False
    """Whether it takes more than one objective."""

    population: Count = 30
    """Individuals in a generation."""
    slots: Count | None = None
    """Evaluations in flight; null is the whole population."""
    episodes: Count = 60
    """Episodes that give an individual its fitness, in whole games."""
    seeds: Literal["common", "fresh"] = "common"
    """Whether all individuals play the same episodes, or each its own."""
    objectives: tuple[Objective, ...] = ("fitness",)
    """Results of the world to maximise, each a name or a weighted sum {name: weight}."""

    def __post_init__(self) -> None:
        if not all(self.objectives) or not self.objectives:
            raise BadRequest("needs a result to maximise, as [fitness]", "objectives")
        for place, objective in enumerate(self.objectives):
            for other in self.objectives[:place]:
                if objective_weights(objective) == objective_weights(other) or objective_name(
                    objective
                ) == objective_name(other):
                    raise BadRequest(f"{objective_name(objective)} is there twice", "objectives")

    @property
    @abstractmethod
    def asynchronous(self) -> bool:
        """Whether it proposes without waiting for a generation, and learns in the order of arrival.

        It says how the evolver works. `follows_arrival` says what a repetition needs. They differ for generations whose
        critic learns beside the actors: the evolver waits for all of them, but which version of the critic each
        follows depends on arrival.
        """

    @property
    def follows_arrival(self) -> bool:
        """Whether results depend on the order in which evaluations arrive, so that a repetition needs a journal."""
        return self.asynchronous

    @abstractmethod
    def evolver(self, space: Space, seed: int = 0) -> Evolver:
        """A new evolver with these hyper-parameters."""

    def notice(self, slots: int) -> str:
        """What its keys do that is probably not meant, with so many evaluations in flight; empty if there is nothing to
        say."""
        return ""

    @property
    def objective_names(self) -> tuple[str, ...]:
        """Names of the objectives: ``fitness``, ``fitness+0.5*lazy``."""
        return tuple(objective_name(term) for term in self.objectives)

    def wanted(self, space: Space) -> dict[str, str]:
        """The results of a world that it uses, each with the config key that names it."""
        return {name: "objectives" for objective in self.objectives for name in objective_weights(objective)}


@dataclass(frozen=True, kw_only=True)
class IndependentEvolution(Evolution):
    """Hyper-parameters of evolvers whose individuals are evaluated independently of each other."""

    hands_on: ClassVar[bool] = True
    """Whether an individual may begin with the memory of another: with the replay of its learner, say."""
    together: Count | None = None
    """Individuals in one task; null: a quarter of the slots where they only play, of a problem all, else one."""
    start: Literal["network", "zeros"] = "network"
    """The initial weights of individuals: those of a new learner, or zeros."""
    lifetime: Literal["play", "train", "balance"] = "play"
    """What an evaluation does: play episodes with weights that evolve; train a learner first; or train it on both sides
    of a game, which is then judged."""
    train_steps: Count = 1_000_000
    """Environment steps of learning in each lifetime=train or balance."""
    asynchronous: bool = False
    """Do not wait for a generation: propose as soon as a slot is free, learn in the order of arrival."""
    inherit_optimizer: bool = False
    """Whether a child inherits the optimiser's state of its parent, as well as the weights."""
    genes: dict[str, Any] = field(default_factory=dict)
    """Ranges of config keys, as a tree like the config; a leaf is [low, high], {low, high, log} or {choices}."""
    reward: EvolvedReward = field(default_factory=EvolvedReward)
    """A reward that evolves, beside the world's, with lifetime=train."""

    @property
    def trains(self) -> bool:
        """Whether an evaluation trains a learner."""
        return self.lifetime != "play"

    @property
    def caps(self) -> bool:
        """Whether it gives individuals a ``cap`` in their memory: the environment steps of their longest episode."""
        return False

    @property
    def opposes(self) -> bool:
        """Whether its individuals learn in games against each other: its evolver is `evorl.ec.opposing.Opposing`."""
        return False

    @property
    def sides(self) -> int | None:
        """The sides that the game must have; None: any number."""
        return None

    @property
    def halves(self) -> bool:
        """Whether the first half of its members learns side 0 of a game, and the second half side 1."""
        return False

    @property
    def zero_sum(self) -> bool:
        """Whether it needs games in which one side earns what the other loses."""
        return False

    def centre(self, space: Space, seed: int = 0) -> Seeded | None:
        """The state that lets a process follow the search by seeds; None for evolvers without one."""
        return None


def objective_weights(objective: Objective) -> Mapping[str, float]:
    """Return the weight of each result in an objective, by name."""
    return {objective: 1.0} if isinstance(objective, str) else objective


def objective_name(term: Objective) -> str:
    """Return the name of an objective: ``fitness``, ``fitness+0.5*lazy``."""
    text = "+".join(name if weight == 1 else f"{weight:g}*{name}" for name, weight in objective_weights(term).items())
    return text.replace("+-", "-")


def ranks_by_fitness(objectives: Sequence[Objective]) -> bool:
    """Return whether the fitness of the world ranks individuals in tables, given ``ec.objectives``.

    It does if there are several objectives and fitness is one of them or part of one. Otherwise the first objective
    ranks them.
    """
    return len(objectives) > 1 and any(objective_weights(objective).get("fitness", 0.0) > 0 for objective in objectives)


def unknown_result(name: str, known: Iterable[str], key: str) -> BadRequest:
    """Return the error for an unknown result that the config names at ``key``."""
    choices = sorted(known)
    return BadRequest(f"there is no result {name}{nearest(name, choices)}; there are: {', '.join(choices)}", key)


def objectives(evaluations: Iterable[Evaluation]) -> Objectives:
    """Return the objectives [N, M]. An individual with a NaN gets -inf everywhere, so it is never selected."""
    f = np.array([evaluation.objectives for evaluation in evaluations], np.float64)
    return np.where(np.isnan(f).any(-1, keepdims=True), -np.inf, f)


def failed(f: Objectives) -> NDArray[np.bool_]:
    """Return which individuals [N] failed: all their objectives [N, M] are -inf."""
    return np.asarray((f == -np.inf).all(axis=1))


def genomes(evaluations: Sequence[Evaluation]) -> Coordinates:
    """Coordinates of the genes [N, G]."""
    return np.array([evaluation.individual.genes for evaluation in evaluations])


def check_due(evaluations: Sequence[Evaluation], due: Set[int]) -> None:
    """Raise ValueError where an id is not due or comes twice, and TypeError where objectives are not a tuple.

    Evolvers call it before they learn anything."""
    counts = Counter(evaluation.individual.id for evaluation in evaluations)
    for number, times in counts.items():
        if number not in due or times > 1:
            raise ValueError(f"individual {number} was not asked for, or was told of before")
    for evaluation in evaluations:
        if not isinstance(evaluation.objectives, tuple):
            raise TypeError(f"objectives are a tuple, (x,) where there is one; got {evaluation.objectives!r}")


def pack(individuals: Sequence[Individual]) -> StateDict:
    """Individuals as columns: plain data and arrays, for a file or the wire."""
    weights = [individual.weights for individual in individuals if individual.weights is not None]
    if len(weights) < len(individuals):  # individuals without weights are sent as seeds
        weights = []
    memories = [individual.memory for individual in individuals]
    return {
        "id": [individual.id for individual in individuals],
        "genes": np.array([individual.genes for individual in individuals]),
        "weights": np.stack(weights) if weights else None,
        "parents": [list(individual.parents) for individual in individuals],
        "birth": [individual.birth for individual in individuals],
        "role": [individual.role for individual in individuals],
        "memory": {str(row): memory for row, memory in enumerate(memories) if memory is not None},
    }


def unpack(state: Mapping[str, Any]) -> list[Individual]:
    """The individuals from the columns of `pack`. Raises TypeError for a memory of another form."""
    genes, weights = np.asarray(state["genes"]), state["weights"]
    return [
        Individual(
            state["id"][row], genes[row], None if weights is None else np.asarray(weights[row]),
            tuple(state["parents"][row]), state["birth"][row], state["role"][row], _memory(state, row),
        )
        for row in range(len(state["id"]))
    ]  # fmt: skip


def _memory(state: Mapping[str, Any], row: int) -> StateDict | None:
    memory: StateDict | None = state["memory"].get(str(row))
    if memory is not None:
        if not isinstance(memory, dict):
            raise TypeError(f"the memory of an individual is {memory!r:.40}")
        for name, part in memory.items():
            if not isinstance(part, (int, np.integer) if name in ("cap", "steps") else dict):
                raise TypeError(f"{name} in the memory of an individual is {part!r:.40}")
    return memory


def pack_evaluations(evaluations: Sequence[Evaluation]) -> StateDict:
    """Evaluations as columns."""
    return {
        "individuals": pack([evaluation.individual for evaluation in evaluations]),
        "objectives": [list(evaluation.objectives) for evaluation in evaluations],
        "cost": [evaluation.cost for evaluation in evaluations],
        "result": {str(row): dict(evaluation.result) for row, evaluation in enumerate(evaluations)},
    }


def unpack_evaluations(state: Mapping[str, Any]) -> list[Evaluation]:
    """The evaluations from the columns of `pack_evaluations`."""
    return [
        Evaluation(individual, tuple(state["objectives"][row]), state["cost"][row], state["result"][str(row)])
        for row, individual in enumerate(unpack(state["individuals"]))
    ]
