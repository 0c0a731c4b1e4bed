"""The loop of one population: fill the free slots, take a result, tell the evolver.

The same loop serves generations and asynchronous search. A synchronous run tells evaluations in the order in which
they were asked, whatever the order of arrival, so any number of workers gives the same bits. An asynchronous run tells
them in the order of arrival, which ``population.jsonl`` keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from evorl.cluster.core import stoppable
from evorl.ec.core import (
    Evaluation,
    IndependentEvolution,
    Individual,
    Seeding,
    genomes,
    pack,
    ranks_by_fitness,
    unpack,
)
from evorl.ec.space import Value
from evorl.mdp.core import StateDict, WorldError
from evorl.mdp.forms import Mismatch
from evorl.nets.compiled import require_compiler
from evorl.population.dispatch import Dispatcher, SeedDispatcher, SeedFollower, Task, WeightDispatcher
from evorl.population.evaluation import evaluation_plan
from evorl.population.results import check_results, errors_under_ec, mean, population_row, to_evaluation, top_rows
from evorl.population.selection import BestIndividual, Candidate, Selection
from evorl.population.warm_start import JournalEntry, WarmStart, initial_states, journal_ended
from evorl.rl.core import Metrics, NotFinite
from evorl.rl.evaluation import evaluate_policy
from evorl.training.experiment import Experiment
from evorl.training.session import Progress
from evorl.training.train import Start, device
from evorl.util.errors import BadRequest

log = logging.getLogger("evorl")

HOPELESS = 1000
"""Failed evaluations in a row after which a run ends. Evaluations that fail at once would never use up the budget."""


class Population:
    """An evolver, its evaluations in flight and the counters: everything that a checkpoint holds."""

    def __init__(
        self,
        experiment: Experiment,
        evolution: IndependentEvolution,
        order: Sequence[JournalEntry] = (),
        init: Start | None = None,
    ) -> None:
        """``order``: the journal of a run to repeat; ``init``: the run to start from. Raises `BadRequest`."""
        self.experiment, self.evolution = experiment, evolution
        found = evaluation_plan(experiment, evolution)
        if experiment.rl.compile:
            require_compiler(device(experiment.device))
        self.warm_start = WarmStart([] if init is None else initial_states(init, found, evolution.population))
        self.plan = replace(found, space=self.warm_start.within(found.space))
        with errors_under_ec():
            check_results(evolution.wanted(found.space), experiment.mdp)
            self.evolver = evolution.evolver(self.plan.space, experiment.seed)
        if isinstance(self.evolver, Seeding):  # the search and its workers begin at the best individual
            self.warm_start.release()
        self.slots = evolution.slots or evolution.population
        self.tasks = -(-self.slots // self.plan.together)  # at once; the last may be short
        self.plan.check_memory(min(self.tasks, experiment.cluster.workers_here))
        self.ranks_by_fitness = ranks_by_fitness(
            evolution.objectives
        )  # whether fitness ranks individuals in output for people
        self.steps = self.evaluations = self.failed = 0
        self.failures_in_a_row = 0  # failed evaluations since the last successful one
        self.best_individual = BestIndividual(Selection(experiment, evolution, self.plan))
        self.best: tuple[float, int] | None = None  # the highest fitness so far, and its step
        self.genes: dict[str, Value] = {}  # gene values of the leader
        self.moments = self.plan.moments()  # statistics of all inputs so far, if the population shares them
        if self.moments is not None and self.warm_start.known is not None:
            self.moments.load_state_dict(self.warm_start.known["moments"])
        self.shared = (
            None if self.moments is None else self.moments.state_dict()
        )  # the statistics that this generation uses
        self._last_evaluation: tuple[Evaluation, Metrics] | None = (
            None  # the individual of the last evaluation, and its metrics
        )
        self._order, self._same_as_before = order, True
        self._in_flight: list[Task] = []
        self.dispatcher = self._new_dispatcher()
        torch.set_num_threads(experiment.rl.threads)  # after the workers have started

    def _new_dispatcher(self) -> Dispatcher:
        """Choose how individuals are sent: as seeds if the evolver allows it and workers are other processes."""
        e, evolution, space = self.experiment, self.evolution, self.plan.space
        spawn = partial(e.cluster.spawn, size=self.tasks, plain=(BadRequest, Mismatch, WorldError))
        travels = isinstance(self.evolver, Seeding) and evolution.lifetime == "play" and self.plan.learner is not None
        if not travels or evolution.asynchronous or e.cluster.in_process:
            self.group = spawn(self.plan.make)
            centre = self.evolver.centre if travels and isinstance(self.evolver, Seeding) else None
            return WeightDispatcher(self.group, centre, evolution.population)
        assert isinstance(self.evolver, Seeding)
        self.evolver.whole = False
        make = partial(SeedFollower, self.plan.make, partial(evolution.centre, space, e.seed))
        self.group = spawn(
            make, size=min(self.tasks, e.cluster.workers)
        )  # one member per process, which keeps the parameters
        return SeedDispatcher(self.group, self.evolver, evolution.population)

    @property
    def leader(self) -> Evaluation | None:
        """The individual that is named best."""
        named = self.best_individual.named
        return None if named is None else named.evaluation

    @property
    def due(self) -> bool:
        """Whether a replay still has journal entries to repeat."""
        return self.evaluations < len(self._order)

    @property
    def ended(self) -> bool:
        """Whether a replay has no individual left; a damaged journal may tell an end far beyond its individuals."""
        return journal_ended(self._order, self.evaluations, self.experiment)

    # -------------------------------------------------------------- the loop

    def iterate(self) -> Progress:
        """Take the evaluations of one task and tell the evolver."""
        if not (self.evaluations or self._in_flight):
            self._warn_if_budget_too_small()
        self._fill_slots()
        with stoppable():  # the tasks in flight are in the checkpoint, and are evaluated again
            task = self._next_task()
            answers = self.dispatcher.answers(task)
        self._in_flight.remove(task)
        answered = [to_evaluation(one, a) for one, a in zip(task.individuals, answers.each, strict=True)]
        evaluations = [evaluation for evaluation, _, _ in answered]
        self.steps += sum(one.cost for one in evaluations)
        self.evaluations += len(evaluations)
        failed = [(one, reason) for one, reason, _ in answered if reason]
        self.failures_in_a_row = self.failures_in_a_row + len(failed) if len(failed) == len(answered) else 0
        self._log_failures(failed)
        self._update_best(evaluations)
        names, space = self.plan.objective_names, self.plan.space
        rows = [population_row(one, space, names, self.steps, seconds) for one, _, seconds in answered]
        self._compare_with_journal(rows)
        self.dispatcher.tell(evaluations)
        return Progress(self._learn(evaluations, answers.seen) | self._metrics(), rows)

    def _warn_if_budget_too_small(self) -> None:
        """Warn if the budget is too small for one generation, even with episodes of one step."""
        e, evolution = self.experiment, self.evolution
        limit = e.budget.steps or e.mdp.budget
        each, keys = 1, list[str]()  # a function takes one step
        if self.plan.learner is not None:
            each, keys = evolution.episodes, ["ec.episodes"]
            if evolution.lifetime == "train":
                each, keys = each + evolution.train_steps, ["ec.train_steps", *keys]
        whole = evolution.population * each
        if whole > limit:
            log.warning(
                "budget.steps=%s ends before one generation is evaluated, which takes %s steps or more, games "
                "included; raise it, or lower %s", f"{limit:_}", f"{whole:,}", " or ".join(["ec.population", *keys]),
            )  # fmt: skip

    def _fill_slots(self) -> None:
        """Ask and send until all slots are in use or the evolver waits for evaluations."""
        while (free := self.slots - sum(len(task.individuals) for task in self._in_flight)) > 0:
            asked = self.evolver.ask(min(free, self.plan.together))
            if not asked:
                break
            self._in_flight.append(self.dispatcher.send([self._with_memory(one) for one in asked]))
        if not self._in_flight:
            raise RuntimeError("the evolver waits for evaluations, and none is in flight")

    def _with_memory(self, one: Individual) -> Individual:
        """Return an individual with its memory: what it needs beside its weights."""
        if self.moments is None:
            return one._replace(memory=self.warm_start.memory(one))
        return one._replace(memory={**(one.memory or {}), "moments": self.shared})

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
        if self.evaluations >= self.evolution.population:
            self.warm_start.release()
        return metrics

    def _next_task(self) -> Task:
        """Return the task whose evaluations are told next."""
        if not self.evolution.asynchronous:
            return self._in_flight[0]
        if self.due:
            return self._task_of(self._order[self.evaluations].id)
        ready = self.group.first([task.future for task in self._in_flight])
        return next(task for task in self._in_flight if task.future is ready)

    def _task_of(self, number: int) -> Task:
        """Return the task of the journal's next individual. Raises `BadRequest` if it is not in flight."""
        for task in self._in_flight:
            if task.individuals[0].id == number:
                return task
        line = f"line {self.evaluations + 1} of the journal is individual {number}"
        raise BadRequest(f"{line}, which is not in flight: the journal is of another run or version", "replay")

    def _compare_with_journal(self, rows: list[dict[str, Any]]) -> None:
        """Warn once if an individual of a replay has other objectives than in the journal."""
        first = self._order[self.evaluations - len(rows) : self.evaluations] if self._same_as_before else []
        for told, row in zip(first, rows, strict=False):  # a resume with a larger budget has more rows than the journal
            now = {name: x if np.isfinite(x) else None for name, x in row["objectives"].items()}
            if now != told.objectives:
                self._same_as_before = False
                log.warning(
                    "this replay differs: individual %d has objectives %s, the journal says %s; the cause is another "
                    "version, other hardware or a world that is not a function of its seed",
                    told.id, now, told.objectives,
                )  # fmt: skip
                return

    # -------------------------------------------------------------- records

    def _value(self, one: Evaluation) -> float:
        """Return the number that ranks individuals in output for people."""
        fitness = one.result.get("fitness") if self.ranks_by_fitness else None
        return one.objectives[0] if fitness is None else mean(fitness)

    def _log_failures(self, failed: list[tuple[Evaluation, str]]) -> None:
        for one, reason in failed:
            log.warning("individual %d failed and has no fitness: %s", one.individual.id, reason)
        self.failed += len(failed)
        if failed and self.leader is None and self.failed >= self.evolution.population:
            raise WorldError(f"every individual so far failed; the last one: {failed[-1][1]}")
        if self.failures_in_a_row >= max(HOPELESS, self.evolution.population):
            raise WorldError(f"the last {self.failures_in_a_row} individuals all failed; the last one: {failed[-1][1]}")

    def _update_best(self, evaluations: list[Evaluation]) -> None:
        before = self.leader
        for one in evaluations:
            worth = self._value(one)
            if self.best_individual.may_be(worth):
                whole = one._replace(individual=self.dispatcher.whole(one.individual))
                self.best_individual.add(Candidate(whole, worth, self.steps))
            if np.isfinite(worth) and (self.best is None or worth > self.best[0]):
                self.best = (worth, self.steps)
        self._note_genes(before)

    def _note_genes(self, before: Evaluation | None) -> None:
        if self.leader is not None and self.leader is not before:
            self.genes = self.plan.space.values(self.leader.individual.genes)

    def _metrics(self) -> Metrics:
        population = self.evolver.population
        metrics: Metrics = {"population/evaluations": self.evaluations, "population/failed": self.failed}
        metrics |= {"population/generation": self.evolver.generation, **self.group.counters()}
        if self.best is not None:
            metrics["population/best"] = self.best[0]
        worth = np.array([self._value(one) for one in population])
        if np.isfinite(worth).any():
            metrics["population/mean"] = float(worth[np.isfinite(worth)].mean())
            metrics["population/std"] = float(worth[np.isfinite(worth)].std())
            metrics["population/age"] = self.evaluations - float(np.mean([one.individual.birth for one in population]))
            if self.plan.space.genes:
                metrics["population/diversity"] = self.plan.space.spread(genomes(population))
        return metrics

    def _diversity(self) -> Metrics:
        """Return the spread of the weights; nothing for searches by seed, whose spread is their sigma."""
        weights = [one.individual.weights for one in self.evolver.population if one.individual.weights is not None]
        if not weights or self.plan.space.genes or isinstance(self.evolver, Seeding):
            return {}
        x = np.stack(weights)
        size = float(np.sqrt(np.square(x).mean()))
        return {"population/diversity": float(x.std(0).mean()) / size} if size else {}

    def top_individuals(self) -> list[dict[str, Any]]:
        """Return the best individuals of the present population as table rows."""
        return top_rows(self.evolver.population, self.plan.space, self.plan.objective_names, self.evaluations)

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
            return {f"eval/{n}_mean": x for n, x in zip(self.plan.objective_names, self.leader.objectives, strict=True)}
        if self._last_evaluation is None or self._last_evaluation[0] is not self.leader:
            e, one = self.experiment, self.leader.individual
            try:
                metrics = evaluate_policy(self.plan.learner(one), e.mdp, e.seed, e.eval.episodes, e.eval.max_steps)
            except NotFinite as error:  # these episodes are not those of its fitness
                log.warning("individual %d cannot be evaluated at step %d: %s", one.id, self.steps, error)
                metrics = {"eval/return_mean": float("nan")}
            self._last_evaluation = self.leader, metrics
        return self._last_evaluation[1] | self.best_individual.metrics()

    def fitness(self, evaluated: Metrics | None) -> float | None:
        return None if self.best is None else self.best[0]

    def result(self) -> dict[str, Any]:
        one = self.best_individual.named
        if one is None:
            return {"best": None}
        about = self.best_individual.result()
        return {
            "fitness": about["fitness"],
            "best": {
                "fitness": about["fitness"], "step": one.step, "individual": one.id,
                "objectives": list(one.evaluation.objectives), "genes": self.genes, **about,
            },
            "evaluations": self.evaluations,
        }  # fmt: skip

    def state_dict(self) -> StateDict:
        leader = self.leader
        learner = None
        if leader is not None and self.plan.learner is not None:
            learner = self.plan.learner(leader.individual).state_dict()
        return {
            "steps": self.steps, "evaluations": self.evaluations, "failed": self.failed,
            "in_vain": self.failures_in_a_row,
            "best": None if self.best is None else list(self.best),
            **self.best_individual.state_dict(),
            "values": self.genes,
            "genes": self.evolution.genes,
            "evolver": self.evolver.state_dict(),
            "flying": {str(n): pack(task.individuals) for n, task in enumerate(self._in_flight)},
            "origin": self.warm_start.state_dict(),
            "moments": None if self.moments is None else {"all": self.moments.state_dict(), "shared": self.shared},
            "learner": learner,  # the best individual's, for evorl.evaluate
        }  # fmt: skip

    def appended_rows(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        self.steps, self.evaluations, self.failed = state["steps"], state["evaluations"], state["failed"]
        self.failures_in_a_row = state.get("in_vain", 0)  # missing in runs of older versions
        self.best = None if state["best"] is None else (state["best"][0], state["best"][1])
        self.best_individual.load_state_dict(state)
        self.genes = state.get("values", {})  # likewise
        self.evolver.load_state_dict(state["evolver"])
        self.warm_start.load_state_dict(state["origin"])
        if self.moments is not None:
            self.moments.load_state_dict(state["moments"]["all"])
            self.shared = state["moments"]["shared"]
        self.dispatcher.resumed()
        self._in_flight = [self.dispatcher.send(unpack(state["flying"][str(n)])) for n in range(len(state["flying"]))]

    def close(self) -> None:
        self.group.close()
        self.experiment.mdp.close()
