"""The loop of one population: fill the free slots, take a result, tell the evolver.

The same loop serves generations and asynchronous search. In a synchronous run the evolver receives evaluations in the
order of its proposals, not of arrival, so any number of workers gives the same bits. An asynchronous run tells them in
the order of arrival, which ``population.jsonl`` keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from evorl.ec.core import Evaluation, IndependentEvolution, Individual, genomes, pack, ranks_by_fitness, unpack
from evorl.ec.early_stopping import Promoting, least_steps
from evorl.ec.opposing import Opposing, Ranking, Tabular
from evorl.ec.seeding import Seeding
from evorl.ec.space import Value
from evorl.mdp.core import StateDict, WorldError
from evorl.mdp.forms import Mismatch
from evorl.nets.compiled import require_compiler
from evorl.population.core import PopulationLoop
from evorl.population.dispatch import Dispatcher, SeedDispatcher, SeedFollower, Task, WeightDispatcher
from evorl.population.evaluation import evaluation_plan
from evorl.population.journal import IndividualEntry
from evorl.population.log_rows import population_row
from evorl.population.objectives import POINTS, check_results, mean
from evorl.population.results import WITHOUT_RESULT, TaskResult, errors_under_ec, to_evaluation, why
from evorl.population.selection import BestIndividual, Candidate, Selection
from evorl.population.warm_start import WarmStart, initial_states
from evorl.rl.core import Metrics
from evorl.rl.evaluation import evaluate_policy
from evorl.rl.evaluation import fitness as evaluation_fitness
from evorl.training.core import Progress
from evorl.training.experiment import Experiment
from evorl.training.train import Start, device
from evorl.util.errors import BadRequest

log = logging.getLogger("evorl")


class Population(PopulationLoop[Task]):
    """A population whose individuals are evaluated independently of each other: everything that a checkpoint holds."""

    evolution: IndependentEvolution

    def __init__(
        self,
        experiment: Experiment,
        evolution: IndependentEvolution,
        order: Sequence[IndividualEntry] = (),
        init: Start | None = None,
    ) -> None:
        """``order``: the journal of a run to repeat; ``init``: the run to start from. Raises `BadRequest`."""
        super().__init__(experiment, evolution, order)
        self._open.callback(experiment.mdp.hold())  # worlds of individuals are closed one after the other
        try:
            self._prepare(init)
        except BaseException:
            self.close()
            raise

    def _prepare(self, init: Start | None) -> None:
        """Make the evolver, and the group that evaluates. Raises `BadRequest`."""
        experiment, evolution = self.experiment, self.evolution
        plan = evaluation_plan(experiment, evolution)
        if experiment.rl.compile:
            require_compiler(device(experiment.device))
        most, halves = evolution.population, evolution.halves
        self.warm_start = WarmStart([] if init is None else initial_states(init, plan, most, halves))
        self.space, self.objective_names = self.warm_start.within(plan.space), plan.objective_names
        self.plan = replace(plan, space=self.space)
        with errors_under_ec():
            wanted = evolution.wanted(self.space)
            check_results(wanted, experiment.mdp, [*plan.results, *([POINTS] if evolution.opposes else [])])
            self.evolver = evolution.evolver(self.space, experiment.seed)
        if isinstance(self.evolver, Seeding):  # the search and its workers begin at the best individual
            self.warm_start.release()
        self.slots = evolution.slots or evolution.population
        self.tasks = -(-self.slots // plan.together)  # at once; the last may be short
        plan.check_memory(min(self.tasks, experiment.cluster.workers_here))
        self.ranks_by_fitness = ranks_by_fitness(evolution.objectives)  # in output for people
        by = "points in its own games" if POINTS in wanted else ""
        by = self.evolver.ranked_by if isinstance(self.evolver, Ranking) else by
        self.ranked_by_games = bool(by) and plan.evaluate is None  # against each other, not by the world's fitness
        by = "first fitness" if plan.evaluate is not None else by  # its games are the individual's own
        self.best_individual = BestIndividual(Selection(experiment, evolution, self.plan, by))
        self.any_game = False  # whether a game of an individual has ended in this session
        self.leader_genes: dict[str, Value] = {}  # gene values of the leader
        self.moments = plan.moments()  # statistics of all inputs so far, if the population shares them
        if self.moments is not None and self.warm_start.known is not None:
            self.moments.load_state_dict(self.warm_start.known["moments"])
        self.shared = None if self.moments is None else self.moments.state_dict()  # those that this generation uses
        self._last_evaluation: tuple[Evaluation, Metrics] | None = None  # the leader of the last one, and its metrics
        self.dispatcher = self._new_dispatcher()
        self._open.callback(self.group.close)
        torch.set_num_threads(experiment.rl.threads)  # after the workers have started

    def _new_dispatcher(self) -> Dispatcher:
        """Choose how individuals are sent: as seeds if the evolver allows it and workers are other processes."""
        e, evolution = self.experiment, self.evolution
        spawn = partial(e.cluster.spawn, size=self.tasks, plain=(BadRequest, Mismatch, WorldError))
        plays = evolution.lifetime == "play" and self.plan.learner is not None
        search = self.evolver if plays and isinstance(self.evolver, Seeding) else None
        if search is None or evolution.asynchronous or e.cluster.in_process:
            self.group = spawn(self.plan.make)
            centre = None if search is None else search.centre
            return WeightDispatcher(self.group, centre, evolution.population, self._with_opponents)
        search.whole = False
        make = partial(SeedFollower, self.plan.make, partial(evolution.centre, self.space, e.seed))
        # one member in each process, which keeps the parameters
        self.group = spawn(make, size=min(self.tasks, e.cluster.workers))
        return SeedDispatcher(self.group, search, evolution.population)

    @property
    def leader(self) -> Evaluation | None:
        """The individual that is named best."""
        named = self.best_individual.named
        return None if named is None else named.evaluation

    @property
    def any_fitness(self) -> bool:
        return self.failed < self.evaluations

    # -------------------------------------------------------------- the loop

    def iterate(self) -> Progress:
        if not (self.evaluations or self.in_flight):
            self._warn_if_budget_too_small()
        return super().iterate()

    def _warn_if_budget_too_small(self) -> None:
        """Warn if the budget is too small for one generation, even with episodes of one step."""
        e, evolution = self.experiment, self.evolution
        limit = e.budget.steps or e.mdp.budget
        each, keys = 1, list[str]()  # a function takes one step
        if self.plan.learner is not None:
            each, keys = evolution.episodes, ["ec.episodes"]
            if evolution.trains:
                each, keys = each + least_steps(evolution), ["ec.train_steps", *keys]
        whole = evolution.population * each
        if whole > limit:
            log.warning(
                "budget.steps=%s ends before one generation is evaluated, which takes %s steps or more, games "
                "included; individuals that have begun take their %s steps all the same; raise it, or lower %s",
                f"{limit:_}", f"{whole:,}", f"{each:,}", " or ".join(["ec.population", *keys]),
            )  # fmt: skip

    def fill_slots(self) -> None:
        while (free := self.slots - sum(len(task.individuals) for task in self.in_flight)) > 0:
            proposals = self.evolver.ask(min(free, self.plan.together))
            if not proposals:
                break
            self.in_flight.append(self.dispatcher.send([self._with_memory(individual) for individual in proposals]))

    def _with_memory(self, individual: Individual) -> Individual:
        """Return an individual with its memory: what it needs beside its weights."""
        if self.moments is None:
            return individual._replace(memory=self.warm_start.memory(individual))
        return individual._replace(memory={**(individual.memory or {}), "moments": self.shared})

    def _next_in_order(self) -> Task | None:
        return None if self.evolution.asynchronous else self.in_flight[0]

    def _answer(self, task: Task) -> TaskResult:
        return self.dispatcher.answers(task)

    def _finish(self, task: Task, answer: TaskResult) -> Progress:
        answered = [to_evaluation(*pair) for pair in zip(task.individuals, answer.each, strict=True)]
        evaluations = [evaluation for evaluation, _, _ in answered]
        self.steps += sum(evaluation.cost for evaluation in evaluations)
        self.evaluations += len(evaluations)
        self._count_failures([(evaluation, reason) for evaluation, reason, _ in answered])
        if not isinstance(self.evolver, Ranking):
            self._update_best(evaluations)
        rows = [
            population_row(evaluation, self.space, self.objective_names, self.steps, seconds)
            | (self.evolver.about(evaluation.individual.id) if isinstance(self.evolver, Opposing) else {})
            for evaluation, _, seconds in answered
        ]
        self.dispatcher.tell(evaluations)
        games = [(one.individual.memory or {}).get("games", {}).get("points", ()) for one in evaluations]
        self.any_game |= any(len(points) > 0 for points in games)
        before = self.evolver.generation
        metrics = self._learn(evaluations, answer.seen)
        if isinstance(self.evolver, Ranking):
            self._follow_leader(self.evolver)
        if self.ranked_by_games and not self.any_game and self.evolver.generation > before == 0:
            log.warning("no game ended in a slice: each of the rl.slots plays ec.train_steps / rl.slots steps of it; "
                        "raise ec.train_steps")  # fmt: skip
        tables = []
        if isinstance(self.evolver, Tabular) and self.evolver.generation > before:
            tables = [{"step": self.steps, **self.evolver.table()}]
        return Progress(metrics | self._metrics(), rows, payoffs=tables)

    def _learn(self, evaluations: list[Evaluation], seen: StateDict | None) -> Metrics:
        """Tell the evolver. New input statistics are shared from the next generation on."""
        before = self.evolver.generation
        with errors_under_ec():
            metrics = self.evolver.tell(evaluations)
        if self.moments is not None and seen is not None:
            self.moments.merge(seen)
        if self.evolver.generation > before:
            metrics |= self._diversity()
            self.shared = None if self.moments is None else self.moments.state_dict()
        begun = self.evolver.begun if isinstance(self.evolver, Promoting) else self.evaluations
        if begun >= self.evolution.population and not self.evolution.opposes:
            self.warm_start.release()  # else the first policies go on playing
        return metrics

    def _with_opponents(self, individual: Individual) -> Individual:
        """Return an individual with the policies of its opponents, where it has some."""
        if not (self.evolution.opposes and isinstance(self.evolver, Opposing)):
            return individual
        matches = self.evolver.opponents(individual.id)
        others = [match for match in matches if match.policy is not None]
        policies = [self._with_memory(match.policy) for match in others if match.policy is not None]
        itself = [match.by_side or (match.chance,) for match in matches if match.policy is None]
        opponents = {
            "numbers": [match.number for match in others],
            "chances": [list(match.by_side or (match.chance,)) for match in others],
            "itself": [sum(sides) for sides in zip(*itself, strict=True)],
            "policies": pack(policies),
        }
        return individual._replace(memory={**(individual.memory or {}), "opponents": opponents})

    # -------------------------------------------------------------- records

    def _value(self, evaluation: Evaluation) -> float:
        """Return the number that ranks individuals in output for people."""
        if isinstance(self.evolver, Ranking):
            return self.evolver.score(evaluation)
        fitness = evaluation.result.get("fitness") if self.ranks_by_fitness else None
        return evaluation.objectives[0] if fitness is None else mean(fitness)

    def _update_best(self, evaluations: list[Evaluation]) -> None:
        before = self.leader
        for evaluation in evaluations:
            value = self._value(evaluation)
            if self.best_individual.may_be(value):
                whole = evaluation._replace(individual=self.dispatcher.whole(evaluation.individual))
                self.best_individual.add(Candidate(whole, value, self.steps))
            if np.isfinite(value):
                self._note_fitness(value)
        self._note_genes(before)

    def _follow_leader(self, evolver: Ranking) -> None:
        """Name the best one best, whose score changes with everybody's games."""
        before, leader = self.leader, evolver.leader
        if leader is not None:
            self.best = (evolver.score(leader), self.steps)
            self.best_individual.name(Candidate(leader, *self.best))
        self._note_genes(before)

    def _note_genes(self, before: Evaluation | None) -> None:
        if self.leader is not None and self.leader is not before:
            self.leader_genes = self.space.values(self.leader.individual.genes)

    def _metrics(self) -> Metrics:
        population, metrics = self.evolver.population, self._counts()
        best, mean_, std = ("score", "score_mean", "score_std") if self.ranked_by_games else ("best", "mean", "std")
        if self.best is not None:
            metrics[f"population/{best}"] = self.best[0]
        values = np.array([self._value(evaluation) for evaluation in population])
        if np.isfinite(values).any():
            metrics[f"population/{mean_}"] = float(values[np.isfinite(values)].mean())
            metrics[f"population/{std}"] = float(values[np.isfinite(values)].std())
            births = [evaluation.individual.birth for evaluation in population]
            metrics["population/age"] = self.births - float(np.mean(births))
            if self.space.genes:
                metrics["population/diversity"] = self.space.spread(genomes(population))
        return metrics

    def _diversity(self) -> Metrics:
        """Return the spread of the weights; nothing for searches by seed, whose spread is their sigma."""
        individuals = [evaluation.individual for evaluation in self.evolver.population]
        weights = [individual.weights for individual in individuals if individual.weights is not None]
        if not weights or self.space.genes or isinstance(self.evolver, Seeding):
            return {}
        x = np.stack(weights)
        size = float(np.sqrt(np.square(x).mean()))
        return {"population/diversity": float(x.std(0).mean()) / size} if size else {}

    # -------------------------------------------------------------- the session's interface

    def evaluate(self) -> Metrics:
        """Name the best individual and evaluate it, once, on the evaluation episodes; for a problem return its
        objectives."""
        before = self.leader
        self.best_individual.select()
        self._note_genes(before)
        if self.leader is None:
            return {"eval/return_mean": float("nan")}
        if self.plan.learner is None:
            return {f"eval/{n}_mean": x for n, x in zip(self.objective_names, self.leader.objectives, strict=True)}
        if self._last_evaluation is None or self._last_evaluation[0] is not self.leader:
            e, leader = self.experiment, self.leader.individual
            try:
                if self.plan.evaluate is not None:
                    metrics = self.plan.evaluate(leader)
                else:
                    learner = self.plan.learner(leader)
                    metrics = evaluate_policy(learner, e.mdp, e.seed, e.eval.episodes, e.eval.max_steps)
            except WITHOUT_RESULT as error:  # these episodes are not those of its fitness
                log.warning("individual %d cannot be evaluated at step %d: %s", leader.id, self.steps, why(error))
                metrics = {"eval/return_mean": float("nan")}
            self._last_evaluation = self.leader, metrics
        return self._last_evaluation[1] | self.best_individual.metrics()

    def fitness(self, evaluated: Metrics | None) -> float | None:
        """The best fitness so far; of a population that ranks by games against each other, the evaluation's."""
        if not self.ranked_by_games:
            return None if self.best is None else self.best[0]
        return None if evaluated is None else evaluation_fitness(evaluated)

    def result(self) -> dict[str, Any]:
        named = self.best_individual.named
        if named is None:
            log.warning("nobody is named best: the budget ended before anybody had a score; raise it")
            return {"best": None}
        about = self.best_individual.result()
        if self.ranked_by_games:
            about |= {"score": about["fitness"], "fitness": self.fitness(self.evaluate())}  # known, but after a resume
        return {
            "fitness": about["fitness"],
            "best": {
                "fitness": about["fitness"], "step": named.step, "individual": named.id,
                "objectives": list(named.evaluation.objectives), "genes": self.leader_genes, **about,
            },
            "evaluations": self.evaluations,
        }  # fmt: skip

    def state_dict(self) -> StateDict:
        leader, learner = self.leader, None
        if leader is not None and self.plan.learner is not None:
            learner = self.plan.learner(leader.individual).state_dict()
        return {
            **super().state_dict(),
            **self.best_individual.state_dict(),
            "leader_genes": self.leader_genes,
            "genes": self.evolution.genes,
            "warm_start": self.warm_start.state_dict(),
            "moments": None if self.moments is None else {"all": self.moments.state_dict(), "shared": self.shared},
            "learner": learner,  # the best individual's, for evorl.evaluate
        }

    def appended_rows(self) -> StateDict:
        return {}

    def _load_rest(self, state: StateDict) -> None:
        self.best_individual.load_state_dict(state)
        self.leader_genes = state["leader_genes"]
        self.warm_start.load_state_dict(state["warm_start"])
        if self.moments is not None:
            self.moments.load_state_dict(state["moments"]["all"])
            self.shared = state["moments"]["shared"]
        self.dispatcher.resumed()

    def _packed(self, task: Task) -> StateDict:
        return pack(task.individuals)

    def _sent_again(self, packed: StateDict) -> Task:
        return self.dispatcher.send(unpack(packed))
