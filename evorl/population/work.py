"""Builds the work of an experiment: one learner, a population, or an evolution with a shared critic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evorl.ec.core import IndependentEvolution
from evorl.ec.shared_critic import SharedCriticEvolution
from evorl.mdp.problem import Problem
from evorl.opponents.sampler import RunPolicy
from evorl.population.journal import IndividualEntry, JobEntry, read_journal
from evorl.rl.off_policy import OffPolicyHyper
from evorl.training.core import Work
from evorl.training.experiment import Experiment
from evorl.training.train import Start, new_run
from evorl.util.errors import BadRequest

UNUSED = (
    *("members", "slots", "horizon", "rounds", "samples_per_step", "asynchronous", "max_lag"),
    *("exploration", "delay", "warm_up_actions"),
)
"""Keys of an off-policy learner that do not count where individuals share a critic."""


def new_work(
    experiment: Experiment,
    init: Start | None = None,
    replay: Path | str | None = None,
    others: Sequence[RunPolicy] = (),
) -> Work:
    """Build the work of an experiment.

    ``init`` is the run to start from. ``replay`` is the directory of an asynchronous evolution to repeat. ``others``
    are the runs in the pool of opponents. Raises `BadRequest`.
    """
    if experiment.ec is not None and experiment.rl.learners > 1:
        raise BadRequest("individuals train side by side in the cluster's workers, with rl.learners=1", "rl.learners")
    if isinstance(experiment.ec, SharedCriticEvolution):
        check(experiment, experiment.ec)
        jobs = [] if replay is None else read_journal(Path(replay), JobEntry, "replay")
        if experiment.ec.critic_ratio is None and experiment.cluster.in_process and not jobs:
            raise BadRequest(
                "null needs cluster=processes or ray: in one process a critic leaves no time to play", "ec.critic_ratio"
            )
        from evorl.population.critic_loop import CriticPopulation  # here: a run of one learner needs neither loop

        return CriticPopulation(experiment, experiment.ec, jobs, init)
    if isinstance(experiment.ec, IndependentEvolution):
        from evorl.population.loop import Population

        order = [] if replay is None else read_journal(Path(replay), IndividualEntry, "replay")
        return Population(experiment, experiment.ec, order, init)
    return new_run(experiment, init, others)


def check(experiment: Experiment, evolution: SharedCriticEvolution) -> None:
    """Raise `BadRequest` for what cannot be combined with a shared critic."""
    if isinstance(experiment.mdp, Problem):
        raise BadRequest("a function has no transitions for a critic to learn from; ec=cem takes any", "ec")
    hyper = experiment.rl
    if not isinstance(hyper, OffPolicyHyper):
        raise BadRequest("needs a learner with a replay and an actor: rl=td3, rl=sac or rl=ddpg", "ec")
    if hyper.normalize_inputs:
        raise BadRequest("individuals that share a critic share no input statistics", "rl.normalize_inputs")
    if hyper.sampler.compares:
        raise BadRequest("there is no one state that all individuals are in; take rl.sampling=uniform", "rl.sampling")
    if hyper.compile:
        raise BadRequest("jobs come and go between processes; use rl.compile with one learner", "rl.compile")
    if len(evolution.objectives) > 1:
        raise BadRequest("this evolution takes one; ec=nsga2, ec=nsga3 and ec=random take several", "ec.objectives")
