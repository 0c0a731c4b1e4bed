"""CleanRL's ppo.py, unchanged and at its own settings, until CartPole-v1 is solved.

Runs in the peers' environment, with `common.CLEANRL` on its path: python cleanrl_ppo.py SETTINGS, where SETTINGS is
JSON: threshold, seed and threads (of torch). Its budget is its own: 500,000 steps.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections import deque
from contextlib import redirect_stdout
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import gym
import torch
from common import CLEANRL, say

EPISODES = 100


class SolvedError(Exception):
    """The criterion is met."""


class Counted(gym.wrappers.RecordEpisodeStatistics):
    """CleanRL's own wrapper of each environment; tells when the last episodes of all of them are good enough."""

    threshold = 0.0
    steps = 0
    returns: ClassVar[deque[float]] = deque(maxlen=EPISODES)

    def step(self, action: Any) -> Any:
        answer = super().step(action)
        Counted.steps += 1
        if answer[2]:
            self.returns.append(answer[3]["episode"]["r"])
            if len(self.returns) == EPISODES and sum(self.returns) >= self.threshold * EPISODES:
                raise SolvedError
        return answer


def main(threshold: float, seed: int, threads: int) -> None:
    torch.set_num_threads(threads)
    Counted.threshold, gym.wrappers.RecordEpisodeStatistics = threshold, Counted
    program, reached = str(CLEANRL / "cleanrl" / "ppo.py"), False
    sys.argv = [program, "--seed", str(seed)]
    with TemporaryDirectory() as place, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        os.chdir(place)  # where it writes its TensorBoard files
        try:
            runpy.run_path(program, run_name="__main__")
        except SolvedError:
            reached = True
    say({"reached": reached, "steps": Counted.steps})


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
