"""How far the policies of a run are from a Nash equilibrium of their game, as OpenSpiel computes it.

    python benchmarks/openspiel/nash_conv.py RUN_DIR...

For every kept checkpoint (checkpoint.every, checkpoint.keep): NashConv of its policy, and of the mixture that draws one
of the policies up to it for each game. The game has to be small and in turns: kuhn_poker, leduc_poker, liars_dice.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from evorl.cli import config
from evorl.jobs.saved_policies import checkpoint_of, learner_of, saved_policy
from evorl.mdp.openspiel import OpenSpiel
from evorl.mdp.openspiel.equilibrium import Policy, nash_conv
from evorl.record import checkpoint
from evorl.rl.network_learner import NetworkLearner
from evorl.rl.probabilities import action_probabilities


class Distance(NamedTuple):
    """NashConv at a checkpoint."""

    step: int
    policy: float
    mixture: float
    """Of all policies up to this one."""


def distances(run_dir: Path) -> Iterator[Distance]:
    """Yield the distances of a run's kept policies. Raises `BadRequest`."""
    experiment = config.experiment_of_run(run_dir, ())
    world = experiment.mdp
    assert isinstance(world, OpenSpiel), f"{run_dir} plays {type(world).__name__}, no game of OpenSpiel"
    policies: list[Policy] = []
    for step in checkpoint.steps(run_dir):
        path, run = checkpoint_of(run_dir, str(step))
        state = saved_policy(experiment, path, run, None).policy
        assert state is not None
        learner = cast("NetworkLearner[Any]", learner_of(experiment, state, torch.device("cpu"), path))
        policies.append(partial(action_probabilities, learner))
        yield Distance(step, nash_conv(world, policies[-1:]), nash_conv(world, policies))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run_dir", type=Path, nargs="+")
    for run_dir in parser.parse_args().run_dir:
        print(f"{run_dir}\n{'step':>10}  {'policy':>7}  mixture")
        for each in distances(run_dir):
            print(f"{each.step:>10,}  {each.policy:>7.4f}  {each.mixture:>7.4f}")
