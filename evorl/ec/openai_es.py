"""Evolution strategies as a scalable alternative to reinforcement learning (Salimans et al. 2017, arXiv 1703.03864).

Individuals are theta + sigma eps_i with eps_i ~ N(0, I); theta climbs the gradient of the expected fitness F,

    g = 1/(n sigma) sum_i u_i eps_i                                                      (algorithm 1)

with u_i the fitness shaped into centred ranks (section 2.1), or (F_i - mean) / std (Marvin's evolution strategy). Half
of the eps_i are minus the other half (antithetic; section 2.1). Adam or momentum takes the step.

Seeds, not weights (algorithm 2): eps_i is a pure function of the seed, the generation and i. So a process that knows
theta rebuilds any individual from its index, and takes the same step from the fitnesses alone: `Centre`. Its arithmetic
is elementwise, in a fixed order, so that different processors compute the same bits.

What differs from the authors' code: noise is drawn from a counter-based generator rather than cut from a table; equal
fitnesses have equal ranks; the gradient keeps its 1/sigma, and weight decay is divided by sigma with it, which changes
nothing for Adam. What a learner does to an individual's weights is not inherited. The next generation inherits the
other state of the best individual, such as the statistics of its inputs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics
from evorl.ec.generational import Generational, without_pending_generation
from evorl.ec.space import Coordinates, Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import clip_genes, fitness, initial_vector, memory_of_fittest, per_coordinate
from evorl.ops.ranks import centred_ranks, normalised
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import Averaging, NonNegative, Positive, StateDict

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam, as in the authors' code
KEPT_BYTES = 1 << 26  # of perturbations, between asking for a generation and its step
SHAPINGS = {"centred_ranks": centred_ranks, "normalised": normalised}

Noise = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class OpenAIES(IndependentEvolution):
    """The defaults without another source are those of the authors' code for MuJoCo."""

    sigma: Positive = 0.02
    """Standard deviation of the perturbations (of genes: in units of their range)."""
    lr: Positive = 0.01
    """Step size."""
    lr_decay: Positive = 1.0
    """What multiplies the step size after every generation (Marvin: 0.999)."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """What takes the step: Adam, or momentum."""
    momentum: Averaging = 0.9
    """Of optimizer=sgd, whose gradients it averages; 0 is plain ascent (Marvin)."""
    weight_decay: NonNegative = 0.005
    """Pull of weights towards 0, beside a gradient that is not yet divided by sigma."""
    antithetic: bool = True
    """Whether individuals come in pairs theta +- sigma eps."""
    shaping: Literal["centred_ranks", "normalised"] = "centred_ranks"
    """The utility of a fitness: its rank, or its distance from the mean in standard deviations (Marvin)."""
    cap: float | None = None
    """Longest episode, in mean lengths of the last generation's (2 in section 2.1), which evaluations have as their
    result ``length``; null: the world's own limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cap is not None and not 1 < self.cap < math.inf:
            raise BadRequest(f"must be above 1, or episodes get shorter and shorter; got {self.cap:g}", "cap")

    @property
    def caps(self) -> bool:
        return self.cap is not None

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        return Strategy(self, space, seed)

    def centre(self, space: Space, seed: int = 0) -> Centre:
        """The state that lets a process rebuild individuals and follow theta without an evolver."""
        return Centre(self, space, seed)


def perturbation(seed: int, generation: int, draw: int, dimensions: int) -> Noise:
    """eps [dimensions] ~ N(0, I) of a draw (an antithetic pair, or an individual) of a generation."""
    noise = seeds.generator(seed, "perturbation", generation, draw)
    return noise.standard_normal(dimensions, np.float32)


class Centre:
    """theta [G + D] and its optimiser at the start of a generation; a few multiples of D in memory.

    It is `evorl.ec.seeding.Seeded`; its individuals have the indices of a synchronous `Strategy`.
    """

    def __init__(self, hyper: OpenAIES, space: Space, seed: int) -> None:
        self.hyper, self.space, self.seed = hyper, space, seed
        self.generation = 0
        self.theta = initial_vector(space, seeds.generator(seed, "start"), 0)
        self.m, self.v = np.zeros((2, space.size))  # first and second moments of the gradient
        self.powers = [1.0, 1.0]  # of Adam's betas; products, since pow() may differ between processors
        self.decay = 1.0
        self._kept: dict[tuple[int, int, int], Noise] = {}

    # -------------------------------------------------------------- individuals

    def individual_at(self, generation: int, index: int, whole: bool = True) -> Individual:
        """The individual at an index of this generation, without its weights unless ``whole``.

        Raises ValueError where theta is at another generation.
        """
        if generation != self.generation:
            raise ValueError(f"theta is of generation {self.generation}; generation {generation} was asked for")
        return self.sample(generation, index, whole)

    def sample(self, generation: int, index: int, whole: bool = True) -> Individual:
        """theta plus the perturbation of an index of any generation."""
        space, genes = self.space, len(self.space.genes)
        draw, sign = self._draw(index)
        size = space.size if whole else genes
        eps = self._noise(generation, draw, size)  # the genes' part is how the whole begins
        x = self.theta[:size] + sign * self.hyper.sigma * eps
        genes_of_x, weights = space.individual(x)
        birth = generation * self.hyper.population
        return Individual(birth + index, genes_of_x, weights if whole else None, birth=birth, role="perturbed")

    def _noise(self, generation: int, draw: int, size: int) -> Noise:
        """A perturbation. All of a small generation are kept for its step. Of a large one only the last is kept: the
        next individual is usually its antithetic pair."""
        key = (generation, draw, size)
        if key not in self._kept:
            if self.hyper.population * size * np.float32().itemsize > KEPT_BYTES:
                self._kept.clear()
            self._kept[key] = perturbation(self.seed, *key)
        return self._kept[key]

    def _draw(self, index: int) -> tuple[int, float]:
        """Number and sign of an individual's perturbation."""
        return (index // 2, 1.0 - 2.0 * (index % 2)) if self.hyper.antithetic else (index, 1.0)

    # -------------------------------------------------------------- the step

    def update(self, fitness: Coordinates) -> Metrics:
        """Take a step by this generation's fitnesses [N], in order of index; NaN or -inf means failed."""
        places = [(self.generation, index) for index in range(self.hyper.population)]
        return self.step(np.where(np.isnan(fitness), -np.inf, fitness), places)

    def step(self, fitness: Coordinates, places: list[tuple[int, int]]) -> Metrics:
        """Take a step by the fitnesses [N] of individuals at any (generation, index)."""
        h = self.hyper
        gradient = self._gradient(SHAPINGS[h.shaping](fitness), places)
        direction = gradient - per_coordinate(self.space, 0.0, h.weight_decay / h.sigma) * self.theta
        moved = h.lr * self.decay * (self._adam(direction) if h.optimizer == "adam" else self._sgd(direction))
        size = float(np.linalg.norm(self.theta))
        self.theta = clip_genes(self.space, self.theta + moved)  # beyond, no difference would lead a gene back
        self.decay *= h.lr_decay
        self.generation += 1
        self._kept.clear()
        return {
            "optimizer/grad_norm": float(np.linalg.norm(gradient)),
            "optimizer/update_ratio": float(np.linalg.norm(moved)) / max(size, 1e-12),
        }

    def _gradient(self, u: Coordinates, places: list[tuple[int, int]]) -> Coordinates:
        """Algorithm 1: 1/(n sigma) sum_i u_i eps_i; a pair's eps is drawn once."""
        total: dict[tuple[int, int], float] = {}
        for (generation, index), utility in zip(places, u.tolist(), strict=True):
            draw, sign = self._draw(index)
            total[generation, draw] = total.get((generation, draw), 0.0) + sign * utility
        g = np.zeros(self.space.size)
        for (generation, draw), utility in total.items():
            if utility:
                g += np.float32(utility) * self._noise(generation, draw, self.space.size)
        return g / (len(places) * self.hyper.sigma)

    def _adam(self, g: Coordinates) -> Coordinates:
        """Kingma & Ba 2015, algorithm 1, without its step size."""
        self.m = BETA1 * self.m + (1 - BETA1) * g
        self.v = BETA2 * self.v + (1 - BETA2) * g * g
        self.powers = [self.powers[0] * BETA1, self.powers[1] * BETA2]
        m, v = self.m / (1 - self.powers[0]), self.v / (1 - self.powers[1])
        return m / (np.sqrt(v) + EPSILON)

    def _sgd(self, g: Coordinates) -> Coordinates:
        """An average of gradients, as in the authors' code."""
        self.m = self.hyper.momentum * self.m + (1 - self.hyper.momentum) * g
        return self.m

    # -------------------------------------------------------------- agreement

    def hash(self) -> str:
        """A hash of theta and its generation, equal if every bit is."""
        return hashlib.blake2b(self.theta.tobytes() + str(self.generation).encode(), digest_size=16).hexdigest()

    def state_dict(self) -> StateDict:
        """The state for a process that joins."""
        return {
            "generation": self.generation, "theta": self.theta, "m": self.m, "v": self.v,
            "powers": list(self.powers), "decay": self.decay,
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        self.generation, self.decay, self.powers = state["generation"], state["decay"], list(state["powers"])
        self.theta, self.m, self.v = (np.array(state[name]) for name in ("theta", "m", "v"))

    def remap_state(self, state: StateDict, move: SpaceChange, generation: int) -> StateDict:
        """The state in another space, at the start of a generation. The optimiser's moments scale like powers of a
        slope. With a new gene they restart at 0, since all share one step count (`powers`)."""
        moved = {**state, "generation": generation, "theta": move.place(state["theta"])}
        if move.fresh.any():
            return {**moved, "m": np.zeros(self.space.size), "v": np.zeros(self.space.size), "powers": [1.0, 1.0]}
        return {**moved, **{name: move.scaled(state[name], -power, 0.0) for name, power in (("m", 1), ("v", 2))}}


class Strategy(Generational):
    """Proposes generations around theta; its population is the last one without the failed individuals.

    ``whole = False`` proposes individuals without weights, for workers that hold a `Centre` of their own.
    """

    hyper: OpenAIES

    def __init__(self, hyper: OpenAIES, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.centre = hyper.centre(space, seed)
        self.whole = True

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        """The next individuals. In an asynchronous search theta may be older or newer than their generation."""
        numbers = range(self.next_id, self.next_id + self.brood)
        self.next_id = numbers.stop
        made = (self.centre.sample(*divmod(i, self.hyper.population), self.whole) for i in numbers)
        memory, cap = memory_of_fittest(self.population), self.cap
        if cap is not None:
            memory = {**(memory or {}), "cap": cap}
        return [individual._replace(birth=self.told, memory=memory) for individual in made]

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        places = [divmod(evaluation.individual.id, self.hyper.population) for evaluation in evaluations]
        f = fitness(evaluations)
        self.population = [evaluation for evaluation, sound in zip(evaluations, np.isfinite(f), strict=True) if sound]
        metrics: Metrics = {} if self.cap is None else {"population/cap": self.cap}
        return metrics | self.centre.step(f, places)

    @property
    def cap(self) -> int | None:
        """Maximum environment steps per episode of the individuals proposed now (section 2.1); None: the world's limit.

        It stops one long episode from delaying a generation."""
        if self.hyper.cap is None or not self.population:
            return None
        length = float(np.mean(np.concatenate([evaluation.result["length"] for evaluation in self.population])))
        return math.ceil(self.hyper.cap * length)

    @property
    def arrived(self) -> Sequence[Evaluation]:
        """The evaluations of the current generation that have arrived."""
        return self._arrived

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "centre": self.centre.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.centre.load_state_dict(state["centre"])

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        """Perturbations of the current generation have another length, so the next generation starts."""
        generation = -(-state["next_id"] // self.hyper.population)
        begun = without_pending_generation(super().remap_state(state, move))
        centre = self.centre.remap_state(state["centre"], move, generation)
        return {**begun, "next_id": generation * self.hyper.population, "centre": centre}
