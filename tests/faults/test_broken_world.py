"""A world of somebody's own that breaks, in a run that is begun as the page on worlds says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import forked
import pytest
from harness import QUICK, rows

from evorl.analysis.runs import read_run

SHIP = '''
from collections import Counter
from dataclasses import dataclass

import numpy as np

from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Discrete, Input, Spec, State, Step

tries = Counter()


@dataclass(frozen=True, kw_only=True)
class Ship(BattleWorld):
    """Its second voyage sinks at the third decision, as often as ``sinks`` says; the others arrive."""

    sinks: int = 0

    @property
    def spec(self):
        return Spec((Input("days", (1,)),), Discrete(2))

    def reset(self, *players, seed):
        tries[seed] += 1
        unlucky = len(tries) > 1 and seed == list(tries)[1]
        return Voyage(sinks=unlucky and tries[seed] <= self.sinks)


class Voyage:
    def __init__(self, sinks):
        self.sinks, self.days, self.controllers = sinks, 0, [self]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    @property
    def state(self):
        return State((np.array([self.days / 20], np.float32),))

    async def __call__(self, action):
        self.days += 1
        if self.sinks and self.days == 3:
            raise OSError("the ship has struck a rock")
        return Step(np.array([action[0]], np.float32), terminated=self.days == 20)

    def result(self):
        return {}
'''
CLUSTERS = {"local": (), "processes": ("cluster=processes", "cluster.workers=2", "rl.members=2")}


def sail(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A run into ``place``/run."""
    (place / "mdp").mkdir()
    (place / "mdp" / "ship.yaml").write_text("_target_: ship.Ship\nsinks: 0\n")
    (place / "ship.py").write_text(SHIP)
    told = ("--config-dir=.", "mdp=ship", "trust=[ship]", "hydra.run.dir=run", "budget.steps=1000")
    return forked.evorl("run", *QUICK, *told, *words, cwd=place)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_third_failure_of_an_episode_fails_the_run(cluster: str, tmp_path: Path) -> None:
    done = sail(tmp_path, "mdp.sinks=3", *CLUSTERS[cluster])
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "starting the episode again" not in line]
    assert lines[0] == "evorl: OSError: the ship has struck a rock" and "in __call__" in done.stderr
    assert "Ship failed 3 times in the episode of slot 1" in done.stderr
    run = read_run(tmp_path / "run")
    assert (run.state, run.reason) == ("failed", "OSError: the ship has struck a rock")
    assert "ship.py" in json.loads((tmp_path / "run" / "failure.json").read_bytes())["traceback"]
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_after_two_failures_of_an_episode_the_run_goes_on_to_its_end(cluster: str, tmp_path: Path) -> None:
    done = sail(tmp_path, "mdp.sinks=2", *CLUSTERS[cluster])
    assert done.returncode == 0, done.stderr
    assert read_run(tmp_path / "run").state == "finished"
    assert rows(tmp_path / "run")[-1]["step"] >= 1000
    told = done.stdout + done.stderr
    assert told.count("starting the episode again after OSError('the ship has struck a rock')") >= 2
