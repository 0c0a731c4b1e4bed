"""The samplers of optuna (Akiba et al. 2019, arXiv 1907.10902) as evolvers: proposals of genes, of the library itself.

``tpe`` is the tree-structured Parzen estimator (Bergstra et al. 2011), optuna's own choice; ``cma_es`` is its CMA-ES,
which draws categories at random. Each gene is a parameter: a real number between its bounds (of its logarithm where it
has ``log``), an integer, or a category.

Each trial is sampled by a new sampler with a seed of its own, from the study so far. So the study is all there is to
remember, and a resumed search builds it again: it asks and tells as before, and each trial keeps its genes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from evorl.ec.cma_es import one_thread
from evorl.ec.core import Evaluation, IndependentEvolution, Individual, Metrics
from evorl.ec.generational import Generational
from evorl.ec.space import Coordinates, Gene, Space
from evorl.ec.space_change import SpaceChange
from evorl.ec.vectors import fitness
from evorl.util import seed as seeds
from evorl.util.command import install
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial


@dataclass(frozen=True, kw_only=True)
class Optuna(IndependentEvolution):
    """A sampler with optuna's defaults."""

    hands_on = False

    sampler: Literal["tpe", "cma_es"] = "tpe"
    """What proposes: a tree-structured Parzen estimator or CMA-ES."""

    def evolver(self, space: Space, seed: int = 0) -> Strategy:
        if not space.genes:
            raise BadRequest("samples genes, and there are none; ec=cma_es searches for weights", "sampler")
        try:
            import optuna
        except ImportError:
            raise BadRequest(f"this evolver needs optuna: {install('optuna')}", "sampler") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return Strategy(self, space, seed)


def sampler(name: str, seed: int) -> BaseSampler:
    """A new sampler."""
    from optuna import samplers

    if name == "cma_es":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return samplers.TPESampler(seed=seed)


def suggested(trial: Trial, gene: Gene) -> float:
    """The coordinate of a gene in a trial, which is asked for a real number, an integer or a category."""
    if gene.choices:
        return float(trial.suggest_categorical(gene.name, range(len(gene.choices))))
    low, high = gene.bounds
    if gene.integer:
        return gene.coordinate(trial.suggest_int(gene.name, int(gene.value(low)), int(gene.value(high)), log=gene.log))
    return trial.suggest_float(gene.name, low, high)


def parameter(gene: Gene, x: float) -> float | int:
    """The parameter of a gene's coordinate: that of `suggested`."""
    if gene.choices:
        return min(max(round(x), 0), len(gene.choices) - 1)
    return int(gene.value(x)) if gene.integer else x


class Strategy(Generational):
    """A study; its population is the best of its trials."""

    hyper: Optuna

    def __init__(self, hyper: Optuna, space: Space, seed: int) -> None:
        super().__init__(hyper, space, seed)
        self.events: list[tuple[int, float]] = []  # a trial is asked for (NaN) or told of, by its number
        self.genes: list[Coordinates] = []  # of each trial
        self._begin()

    def _begin(self) -> None:
        """An empty study."""
        import optuna

        self.study = optuna.create_study(direction="maximize")
        self.trials: dict[int, Trial] = {}  # that are not told yet

    @property
    def batch(self) -> int:
        return 1

    def propose(self, generator: np.random.Generator) -> list[Individual]:
        return [self._drawn() for _ in range(self.brood)]

    def _drawn(self) -> Individual:
        number = self.next_id
        begun = self.space.initial_values is not None and self.space.initial_values(number)
        first = self.space.begin(seeds.generator(self.seed, "begin", number), number)[0] if begun else None
        self.genes.append(self._ask(number, first))
        self.events.append((number, np.nan))
        return self.new(genes=self.genes[-1], weights=self.space.weights_of(number), role="initial")

    def _ask(self, number: int, genes: Coordinates | None) -> Coordinates:
        """Begin a trial, with genes of the sampler if None; return its genes [G]."""
        if genes is not None:
            pairs = zip(self.space.genes, genes.tolist(), strict=True)
            self.study.enqueue_trial({gene.name: parameter(gene, x) for gene, x in pairs})
        self.study.sampler = sampler(self.hyper.sampler, seeds.key(self.seed, "trial", number) >> 32)
        with one_thread():
            trial = self.trials[number] = self.study.ask()
            _ = trial.relative_params  # whatever a sampler remembers in a trial, it notes here, before genes are given
            return np.array([suggested(trial, gene) for gene in self.space.genes])

    def learn(self, evaluations: list[Evaluation], generator: np.random.Generator) -> Metrics:
        for evaluation, f in zip(evaluations, fitness(evaluations).tolist(), strict=True):
            self._tell(evaluation.individual.id, f)
            self.events.append((evaluation.individual.id, f))
        pool = [*self.population, *evaluations]
        f = fitness(pool)
        best = np.argsort(-f, kind="stable")[: self.hyper.population]
        self.population = [pool[i] for i in best if np.isfinite(f[i])]
        return {}

    def _tell(self, number: int, f: float) -> None:
        from optuna.trial import TrialState

        trial, most = self.trials.pop(number), np.finfo(np.float64).max
        if f == -np.inf:
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            self.study.tell(trial, min(f, float(most)))

    def state_dict(self) -> StateDict:
        return {
            **super().state_dict(),
            "trials": {
                "genes": np.array(self.genes).reshape(len(self.genes), len(self.space.genes)),
                "events": np.array([number for number, _ in self.events], np.int64),
                "values": np.array([f for _, f in self.events], np.float64),
            },
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Build the study again."""
        super().load_state_dict(state)
        trials = state["trials"]
        self.genes = list(np.asarray(trials["genes"]))
        numbers, values = (np.asarray(trials[name]).tolist() for name in ("events", "values"))
        self.events = list(zip(numbers, values, strict=True))
        self._begin()
        for number, f in self.events:
            if np.isnan(f):
                self._ask(number, self.genes[number])
            else:
                self._tell(number, f)

    def remap_state(self, state: StateDict, move: SpaceChange) -> StateDict:
        trials = state["trials"]
        genes = np.array([move.genes(x, number) for number, x in enumerate(np.asarray(trials["genes"]))])
        return {**super().remap_state(state, move), "trials": {**trials, "genes": genes}}
