"""A worker that learns as ``evorl.run`` does, without records: python ours.py WORD... (see `common.serve`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from common import serve

from evorl.cli.config import experiment_of_words as experiment

if TYPE_CHECKING:
    from evorl.training.experiment import Experiment


def learn(whole: Experiment, playing: bool = False) -> None:
    """``playing``: count the seconds of playing, not the steps; their rate is the share of time that playing takes."""
    from evorl.training.train import Run

    run = Run(whole)

    def update() -> float:
        before = run.steps
        metrics = run.iterate().metrics
        return metrics["speed/sample_seconds"] if playing else run.steps - before

    # an asynchronous run has batches ready when it is asked
    serve(update, settle=2 if whole.rl.asynchronous else 0)
    run.close()


def main() -> None:
    learn(experiment(sys.argv[1:]))


if __name__ == "__main__":
    main()
