"""A worker that learns as ``evorl.run`` does, without records: python ours.py WORD... (see `common.serve`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from common import serve

from evorl import config

if TYPE_CHECKING:
    from evorl.experiment import Experiment


def experiment(words: Sequence[str]) -> Experiment:
    """What the command line ``evorl.run WORD...`` trains."""
    with config.opened() as hydra:
        return config.experiment(config.resolved(config.compose(hydra, words)))


def learn(whole: Experiment) -> None:
    from evorl.train import Run

    run = Run(whole)

    def update() -> int:
        before = run.steps
        run.iterate()
        return run.steps - before

    serve(update)
    run.close()


def main() -> None:
    learn(experiment(sys.argv[1:]))


if __name__ == "__main__":
    main()
