"""One population that evolves: fill the free slots, take a result, tell the evolver; what a checkpoint holds of it.

One loop serves generations and asynchronous search. In a synchronous run evaluations are told in the order they were
asked for, whatever the order of their arrival, so the same bits come out on any number of workers. An asynchronous
run tells them as they arrive, and ``population.jsonl`` keeps that order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evorl.analysis.population import ranks_by_fitness
from evorl.ec.core import (
    Evaluation,
    Evolution,
    Individual,
    Seeding,
    genomes,
    objectives,
    pack,
    pack_evaluations,
    unpack,
    unpack_evaluations,
)
from evorl.ec.space import Value
from evorl.mdp.core import StateDict, WorldError
from evorl.nets.compiled import require_compiler
from evorl.ops.pareto import best
from evorl.population.dispatch import BySeed, Courier, Follower, Task, Whole
from evorl.population.evaluation import plan
from evorl.population.results import check_results, evaluated, mean
from evorl.population.warm_start import Origin, Told, beginnings, journal
from evorl.record.terminal import TABLE_ROWS
from evorl.rl.core import Metrics, NotFinite
from evorl.rl.evaluation import judge
from evorl.training.experiment import Experiment
from evorl.training.session import Progress, Work
from evorl.training.train import Start, device, prepared
from evorl.util.errors import BadRequest

log = logging.getLogger("evorl")

HOPELESS = 1000
"""Evaluations in a row that failed, after which a run ends: those that fail at once would never use up its budget."""


class Population:
    """An evolver, the evaluations in flight and their counters: everything that a checkpoint holds."""

    def __init__(
        self, experiment: Experiment, evolution: Evolution, order: Sequence[Told] = (), init: Start | None = None
    ) -> None:
        """``order``: the individuals that another run was told of, in their order, to be told so again; ``init``: the
        run that this one starts from. Raises `BadRequest`."""
        self.experiment, self.evolution = experiment, evolution
        found = plan(experiment, evolution)
        if experiment.rl.compile:
            require_compiler(device(experiment.device))
        self.origin = Origin([] if init is None else beginnings(init, found, evolution.population))
        self.plan = replace(found, space=self.origin.within(found.space))
        with _under_ec():
            check_results(evolution.wanted(found.space), experiment.mdp)
            self.evolver = evolution.evolver(self.plan.space, experiment.seed)
        if isinstance(self.evolver, Seeding):  # it begins around the best, and so do the workers who follow it
            self.origin.settle()
        self.slots = evolution.slots or evolution.population
        self.ranks_by_fitness = ranks_by_fitness(evolution.objectives)  # whether that ranks individuals for a person
        self.steps = self.evaluations = self.failed = 0
        self.in_vain = 0  # evaluations since the last one that did not fail
        self.leader: Evaluation | None = None  # the best individual so far
        self.best: tuple[float, int] | None = None
        self.genes: dict[str, Value] = {}  # the leader's values, as it was evaluated with
        self.moments = self.plan.moments()  # of all inputs seen so far, where the population shares such
        if self.moments is not None and self.origin.known is not None:
            self.moments.load_state_dict(self.origin.known["moments"])
        self.shared = None if self.moments is None else self.moments.state_dict()  # as this generation knows them
        self._judged: tuple[Evaluation, Metrics] | None = None  # who was, and what came out
        self._order, self._alike = order, True
        self._flying: list[Task] = []
        self.courier = self._courier()
        torch.set_num_threads(experiment.rl.threads)  # after the workers have started

    def _courier(self) -> Courier:
        """By seed where the evolver allows it and processes lie between; else whole."""
        e, evolution, space = self.experiment, self.evolution, self.plan.space
        tasks = -(-self.slots // self.plan.together)  # the last one may be short
        spawn = partial(e.cluster.spawn, size=tasks, plain=(BadRequest, WorldError))
        travels = isinstance(self.evolver, Seeding) and evolution.lifetime == "play" and self.plan.learner is not None
        if not travels or evolution.asynchronous or e.cluster.in_process:
            self.group = spawn(self.plan.make)
            centre = self.evolver.centre if travels and isinstance(self.evolver, Seeding) else None
            return Whole(self.group, centre, evolution.population)
        assert isinstance(self.evolver, Seeding)
        self.evolver.whole = False
        make = partial(Follower, self.plan.make, partial(evolution.centre, space, e.seed))
        self.group = spawn(make, size=min(tasks, e.cluster.workers))  # one for each process, with its parameters
        return BySeed(self.group, self.evolver, evolution.population)

    @property
    def due(self) -> bool:
        """Whether there are individuals that another run was told of, and this one not yet."""
        return self.evaluations < len(self._order)

    # -------------------------------------------------------------- the loop

    def iterate(self) -> Progress:
        """Take one task's evaluations and tell the evolver of them."""
        if not (self.evaluations or self._flying):
            self._warn()
        self._fill()
        task = self._next()
        self._flying.remove(task)
        answers = self.courier.answers(task)
        answered = [evaluated(one, a) for one, a in zip(task.individuals, answers.each, strict=True)]
        evaluations = [evaluation for evaluation, _, _ in answered]
        self.steps += sum(one.cost for one in evaluations)
        self.evaluations += len(evaluations)
        failed = [(one, reason) for one, reason, _ in answered if reason]
        self.in_vain = self.in_vain + len(failed) if len(failed) == len(answered) else 0
        self._notice(failed)
        self._remember(evaluations)
        rows = [self._row(one, seconds) for one, _, seconds in answered]
        self._compare(rows)
        self.courier.tell(evaluations)
        return Progress(self._learn(evaluations, answers.seen) | self._metrics(), rows)

    def _warn(self) -> None:
        """Say so where the budget cannot pay for one generation, whatever the lengths of its episodes."""
        e, evolution = self.experiment, self.evolution
        limit = e.budget.steps or e.mdp.budget
        each, keys = 1, list[str]()  # of a function
        if self.plan.learner is not None:
            each, keys = evolution.episodes, ["ec.episodes"]
            if evolution.lifetime == "train":
                each, keys = each + evolution.train_steps, ["ec.train_steps", *keys]
        whole = evolution.population * each
        if whole > limit:
            log.warning(
                "budget.steps=%d ends before one generation is evaluated, which takes %d steps or more, games "
                "included; raise it, or lower %s", limit, whole, " or ".join(["ec.population", *keys]),
            )  # fmt: skip

    def _fill(self) -> None:
        """Ask and send until as many evaluations are in flight as may be, or the evolver waits."""
        while (free := self.slots - sum(len(task.individuals) for task in self._flying)) > 0:
            asked = self.evolver.ask(min(free, self.plan.together))
            if not asked:
                break
            self._flying.append(self.courier.send([self._knowing(one) for one in asked]))
        if not self._flying:
            raise RuntimeError("the evolver waits for evaluations, and none is in flight")

    def _knowing(self, one: Individual) -> Individual:
        """An individual with what it is to know beside its weights."""
        if self.moments is None:
            return one._replace(memory=self.origin.memory(one))
        return one._replace(memory={**(one.memory or {}), "moments": self.shared})

    def _learn(self, evaluations: list[Evaluation], seen: StateDict | None) -> Metrics:
        """Tell the evolver; what was seen is shared with everybody from the next generation on."""
        before = self.evolver.generation
        with _under_ec():
            metrics = self.evolver.tell(evaluations)
        if self.moments is not None and seen is not None:
            self.moments.merge(seen)
        if self.evolver.generation > before:
            metrics |= self._diversity()
            self.shared = None if self.moments is None else self.moments.state_dict()
        if self.evaluations >= self.evolution.population:
            self.origin.settle()
        return metrics

    def _next(self) -> Task:
        """The task whose evaluations are told next."""
        if not self.evolution.asynchronous:
            return self._flying[0]
        if self.due:
            return self._wanted(self._order[self.evaluations].id)
        ready = self.group.first([task.future for task in self._flying])
        return next(task for task in self._flying if task.future is ready)

    def _wanted(self, number: int) -> Task:
        """The task of an individual that the journal says was told next. Raises `BadRequest` where there is none."""
        for task in self._flying:
            if task.individuals[0].id == number:
                return task
        line = f"line {self.evaluations + 1} of the journal is of individual {number}"
        raise BadRequest(f"{line}, which is not in flight: it is another run's, or another version's", "replay")

    def _compare(self, rows: list[dict[str, Any]]) -> None:
        """Say so, once, where an individual of a replay comes to something else than it did before."""
        first = self._order[self.evaluations - len(rows) : self.evaluations] if self._alike else []
        for told, row in zip(first, rows, strict=False):  # a resume with a larger budget goes on beyond them
            now = {name: x if np.isfinite(x) else None for name, x in row["objectives"].items()}
            if now != told.objectives:
                self._alike = False
                log.warning(
                    "this is no repetition: individual %d comes to %s, and came to %s; another version, other hardware "
                    "or a world that is no function of its seed", told.id, now, told.objectives,
                )  # fmt: skip
                return

    # -------------------------------------------------------------- what is kept

    def _value(self, one: Evaluation) -> float:
        """What ranks individuals for a person."""
        fitness = one.result.get("fitness") if self.ranks_by_fitness else None
        return one.objectives[0] if fitness is None else mean(fitness)

    def _notice(self, failed: list[tuple[Evaluation, str]]) -> None:
        for one, reason in failed:
            log.warning("individual %d failed and has no fitness: %s", one.individual.id, reason)
        self.failed += len(failed)
        if failed and self.leader is None and self.failed >= self.evolution.population:
            raise WorldError(f"every individual so far failed; the last one: {failed[-1][1]}")
        if self.in_vain >= max(HOPELESS, self.evolution.population):
            raise WorldError(f"the last {self.in_vain} individuals all failed; the last one: {failed[-1][1]}")

    def _remember(self, evaluations: list[Evaluation]) -> None:
        for one in evaluations:
            worth = self._value(one)
            if np.isfinite(worth) and (self.best is None or worth > self.best[0]):
                self.leader = one._replace(individual=self.courier.whole(one.individual))
                self.best = (worth, self.steps)
                self.genes = self.plan.space.values(one.individual.genes)

    def _row(self, one: Evaluation, seconds: float) -> dict[str, Any]:
        """A line of population.jsonl."""
        this = one.individual
        return {
            "id": this.id, "parents": list(this.parents), "role": this.role, "birth": this.birth,
            "genes": self.plan.space.values(this.genes), "cost": one.cost,
            "objectives": dict(zip(self.plan.names, one.objectives, strict=True)),  # what is not finite becomes null
            "results": {name: mean(x) for name, x in one.result.items()},
            "step": self.steps, "seconds": round(seconds, 6),
        }  # fmt: skip

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
        """Of the weights; not of those who travel by seed, which nobody has all of, and whose deviation is given."""
        weights = [one.individual.weights for one in self.evolver.population if one.individual.weights is not None]
        if not weights or self.plan.space.genes or isinstance(self.evolver, Seeding):
            return {}
        x = np.stack(weights)
        size = float(np.sqrt(np.square(x).mean()))
        return {"population/diversity": float(x.std(0).mean()) / size} if size else {}

    def people(self) -> list[dict[str, Any]]:
        """The best individuals of the present population, for a person."""
        population = self.evolver.population
        if not population:
            return []
        ordered = best(objectives(population), TABLE_ROWS)
        return [self._person(population[i]) for i in ordered]

    def _person(self, one: Evaluation) -> dict[str, Any]:
        this = one.individual
        return {
            "individual": this.id, **dict(zip(self.plan.names, one.objectives, strict=True)), "role": this.role,
            "age": self.evaluations - this.birth, "parents": " ".join(map(str, this.parents)),
            **self.plan.space.values(this.genes),
        }  # fmt: skip

    # -------------------------------------------------------------- what a session asks

    def judge(self) -> Metrics:
        """Evaluate the best individual, once, on episodes of their own; a problem's is as it is."""
        if self.leader is None:
            return {"eval/return_mean": float("nan")}
        if self.plan.learner is None:
            return {f"eval/{n}_mean": x for n, x in zip(self.plan.names, self.leader.objectives, strict=True)}
        if self._judged is None or self._judged[0] is not self.leader:
            e, one = self.experiment, self.leader.individual
            try:
                metrics = judge(self.plan.learner(one), e.mdp, e.seed, e.eval.episodes)
            except NotFinite as error:  # on other episodes than those of its fitness
                log.warning("individual %d cannot be judged at step %d: %s", one.id, self.steps, error)
                metrics = {"eval/return_mean": float("nan")}
            self._judged = self.leader, metrics
        return dict(self._judged[1])

    def fitness(self, judged: Metrics | None) -> float | None:
        return None if self.best is None else self.best[0]

    def result(self) -> dict[str, Any]:
        if self.leader is None or self.best is None:
            return {"best": None}
        one = self.leader
        return {
            "best": {
                "fitness": self.best[0], "step": self.best[1], "individual": one.individual.id,
                "objectives": list(one.objectives), "genes": self.genes,
            },
            "evaluations": self.evaluations,
        }  # fmt: skip

    def state_dict(self) -> StateDict:
        leader = self.leader
        learner = None
        if leader is not None and self.plan.learner is not None:
            learner = self.plan.learner(leader.individual).state_dict()
        return {
            "steps": self.steps, "evaluations": self.evaluations, "failed": self.failed, "in_vain": self.in_vain,
            "best": None if self.best is None else list(self.best),
            "leader": pack_evaluations([] if leader is None else [leader]),
            "values": self.genes,
            "genes": self.evolution.genes,
            "evolver": self.evolver.state_dict(),
            "flying": {str(n): pack(task.individuals) for n, task in enumerate(self._flying)},
            "origin": self.origin.state_dict(),
            "moments": None if self.moments is None else {"all": self.moments.state_dict(), "shared": self.shared},
            "learner": learner,  # the best individual's, for whoever judges this run again
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        self.steps, self.evaluations, self.failed = state["steps"], state["evaluations"], state["failed"]
        self.in_vain = state.get("in_vain", 0)  # not noted by runs of before
        self.best = None if state["best"] is None else (state["best"][0], state["best"][1])
        self.leader = next(iter(unpack_evaluations(state["leader"])), None)
        self.genes = state.get("values", {})  # the same
        self.evolver.load_state_dict(state["evolver"])
        self.origin.load_state_dict(state["origin"])
        if self.moments is not None:
            self.moments.load_state_dict(state["moments"]["all"])
            self.shared = state["moments"]["shared"]
        self.courier.resumed()
        self._flying = [self.courier.send(unpack(state["flying"][str(n)])) for n in range(len(state["flying"]))]

    def close(self) -> None:
        self.group.close()
        self.experiment.mdp.close()


@contextmanager
def _under_ec() -> Iterator[None]:
    """What an evolver refuses is a key of the evolution's."""
    try:
        yield
    except BadRequest as error:
        raise error.under("ec") from None


def work(experiment: Experiment, init: Start | None = None, replay: Path | str | None = None) -> Work:
    """What an experiment does: one learner trains, or where it has an ``ec`` a population evolves.

    ``init`` is the run that it starts from; ``replay`` the directory of an asynchronous evolution whose order
    of arrival this one takes. Raises `BadRequest`.
    """
    if experiment.ec is None:
        return prepared(experiment, init)
    return Population(experiment, experiment.ec, [] if replay is None else journal(Path(replay), "replay"), init)
