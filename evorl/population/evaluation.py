"""Chooses how the individuals of an experiment are evaluated, and refuses what cannot be."""

from __future__ import annotations

from evorl.ec.core import IndependentEvolution
from evorl.ec.early_stopping import EarlyStopping
from evorl.mdp.problem import Problem
from evorl.population.balance_evaluator import balance_plan
from evorl.population.evaluation_plan import EvaluationPlan
from evorl.population.function_evaluator import function_plan
from evorl.population.play_evaluator import play_plan
from evorl.population.train_evaluator import train_plan
from evorl.training.experiment import Experiment
from evorl.util.errors import BadRequest

PLANS = {"play": play_plan, "train": train_plan, "balance": balance_plan}


def evaluation_plan(experiment: Experiment, evolution: IndependentEvolution) -> EvaluationPlan:
    """Plan the evaluations of an experiment. Raises `BadRequest` if it cannot be evolved."""
    _check(experiment, evolution)
    if isinstance(experiment.mdp, Problem):
        return function_plan(experiment.mdp, evolution)
    return PLANS[evolution.lifetime](experiment, evolution)


def _check(experiment: Experiment, evolution: IndependentEvolution) -> None:
    if evolution.start == "zeros" and evolution.trains:
        raise BadRequest("needs lifetime=play; a learner begins with a network's weights", "ec.start")
    problem = experiment.mdp if isinstance(experiment.mdp, Problem) else None
    if experiment.rl.compile and (not evolution.trains or problem is not None):
        raise BadRequest("nothing learns here, so there is nothing to compile", "rl.compile")
    if evolution.reward.kind != "none" and (evolution.lifetime != "train" or evolution.opposes or problem is not None):
        why = (
            "learners that train in the world's own games follow it: take lifetime=train, without opponents that evolve"
        )
        raise BadRequest(why, "ec.reward.kind")
    if experiment.rl.policies != "shared" and evolution.lifetime == "play":
        raise BadRequest("ec.lifetime=play evolves the weights of one network; take ec.lifetime=train", "rl.policies")
    if evolution.caps:
        _check_caps(experiment, evolution)
    if evolution.opposes:
        _check_opponents(experiment, evolution)
    if problem is not None and isinstance(evolution, EarlyStopping):
        raise BadRequest("what is stopped early is training, and a function has none; take ec=random", "ec")
    if problem is not None and evolution.lifetime == "balance":
        raise BadRequest("a function is no game, so there is nothing to balance", "ec.lifetime")
    if problem is not None and evolution.genes:
        raise BadRequest("a problem's numbers are the genes; there are no others", "ec.genes")
    if problem is not None and evolution.objectives not in (IndependentEvolution.objectives, problem.names):
        raise BadRequest(f"a problem's are all its own: {', '.join(problem.names)}", "ec.objectives")
    if not evolution.several and (len(evolution.objectives) if problem is None else problem.count) > 1:
        raise BadRequest("this evolution takes one; ec=nsga2, ec=nsga3 and ec=random take several", "ec.objectives")


def _check_opponents(experiment: Experiment, evolution: IndependentEvolution) -> None:
    if isinstance(experiment.mdp, Problem):
        raise BadRequest("a function is no game, so there are no opponents", "ec")
    if experiment.rl.asynchronous:
        raise BadRequest("opponents are chosen between two batches; add rl.asynchronous=false", "ec")
    try:
        sides = experiment.mdp.all_sides().sides
    except BadRequest as error:
        raise error.under("mdp" if error.key else "ec") from None
    if evolution.sides not in (None, sides):
        raise BadRequest(f"needs a game of {evolution.sides} sides, and this one has {sides}", "ec")
    if evolution.zero_sum and experiment.mdp.zero_sum is False:
        raise BadRequest("needs a game in which one side earns what the other loses, and this one is none", "ec")


def _check_caps(experiment: Experiment, evolution: IndependentEvolution) -> None:
    if isinstance(experiment.mdp, Problem) or evolution.trains:
        raise BadRequest("is for episodes that weights play; there are none here", "ec.cap")
    try:
        experiment.mdp.evaluation_world().capped(1).ready()
    except BadRequest as error:
        raise BadRequest(str(error.args[0]), "ec.cap") from None
