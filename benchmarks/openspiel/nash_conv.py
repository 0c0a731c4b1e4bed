"""How far the policies of a run are from a Nash equilibrium of their game, as OpenSpiel computes it.

    python benchmarks/openspiel/nash_conv.py RUN_DIR...

For every kept checkpoint (checkpoint.every, checkpoint.keep): NashConv of its policy, and of the mixture that draws one
of the policies up to it for each game. For every epoch of ec=psro: of its newest policy, and of its meta-strategy. For
every kept checkpoint of ec=coevolution: of the first member of each side, and of the mixture in which a side draws one
of its members. The game has to be small and in turns: kuhn_poker, leduc_poker, liars_dice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from evorl.cli import config
from evorl.ec.coevolution import Coevolution
from evorl.ec.core import IndependentEvolution
from evorl.ec.psro import PSRO
from evorl.jobs.saved_policies import checkpoint_of, learner_of, saved_policy
from evorl.mdp.openspiel import OpenSpiel
from evorl.mdp.openspiel.equilibrium import nash_conv_of, table
from evorl.population.evaluation import evaluation_plan
from evorl.record import checkpoint
from evorl.rl.core import Learner
from evorl.rl.network_learner import NetworkLearner
from evorl.rl.probabilities import action_probabilities
from evorl.training.experiment import Experiment


class Distance(NamedTuple):
    """NashConv at a checkpoint, or at the end of an epoch."""

    step: int
    policy: float
    mixture: float
    """Of all policies up to this one; of PSRO: of the meta-strategy."""


def distances(run_dir: Path) -> Iterator[Distance]:
    """Yield the distances of a run's kept policies. Raises `BadRequest`."""
    experiment = config.experiment_of_run(run_dir, ())
    assert isinstance(experiment.mdp, OpenSpiel), (
        f"{run_dir} plays {type(experiment.mdp).__name__}, no game of OpenSpiel"
    )
    kinds = ((PSRO, _of_epochs), (Coevolution, _of_populations), (object, _of_checkpoints))
    yield from next(of for kind, of in kinds if isinstance(experiment.ec, kind))(run_dir, experiment, experiment.mdp)


def _of_checkpoints(run_dir: Path, experiment: Experiment, world: OpenSpiel) -> Iterator[Distance]:
    tables: list[Any] = []
    for step in checkpoint.steps(run_dir):
        path, run = checkpoint_of(run_dir, str(step))
        state = saved_policy(experiment, path, run, None).policy
        assert state is not None
        tables.append(_table(world, learner_of(experiment, state, torch.device("cpu"), path)))
        yield Distance(step, nash_conv_of(tables[-1:]), nash_conv_of(tables))


def _of_populations(run_dir: Path, experiment: Experiment, world: OpenSpiel) -> Iterator[Distance]:
    for step in checkpoint.steps(run_dir):
        members = _members(run_dir, str(step), experiment, world)
        half = len(members) // 2  # the first one has side 0
        if len(members) == experiment.ec.population:
            of_sides = np.repeat(np.eye(2), half, axis=1)
            first = of_sides * (np.arange(len(members)) % half == 0)
            tables = [*members.values()]
            yield Distance(step, *(nash_conv_of(tables, mixture.tolist()) for mixture in (first, of_sides)))


def _of_epochs(run_dir: Path, experiment: Experiment, world: OpenSpiel) -> Iterator[Distance]:
    tables = _members(run_dir, "latest", experiment, world)
    for line in (run_dir / "payoffs.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        players = [tables[number] for number in row["policies"]]
        yield Distance(row["step"], nash_conv_of(players[-1:]), nash_conv_of(players, row["mixtures"]))


def _members(run_dir: Path, step: str, experiment: Experiment, world: OpenSpiel) -> dict[int, Any]:
    """Of the population of a checkpoint, by the ids of its individuals."""
    assert isinstance(experiment.ec, IndependentEvolution)
    plan = evaluation_plan(experiment, experiment.ec)
    evolver = experiment.ec.evolver(plan.space, experiment.seed)
    evolver.load_state_dict(checkpoint_of(run_dir, step)[1]["evolver"])
    assert plan.learner is not None
    individuals = [evaluation.individual for evaluation in evolver.population]
    return {individual.id: _table(world, plan.learner(individual)) for individual in individuals}


def _table(world: OpenSpiel, learner: Learner) -> Any:
    return table(world, partial(action_probabilities, cast("NetworkLearner[Any]", learner)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run_dir", type=Path, nargs="+")
    for run_dir in parser.parse_args().run_dir:
        print(f"{run_dir}\n{'step':>10}  {'policy':>7}  mixture")
        for each in distances(run_dir):
            print(f"{each.step:>10,}  {each.policy:>7.4f}  {each.mixture:>7.4f}")
