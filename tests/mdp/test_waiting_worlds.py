"""A signal ends the wait for a world that does not answer, where what waits may be given up."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from remote_games import FAULTY
from test_godot_rl import GAME
from tiny import Walk

from evorl.cluster.core import Stopped, stop_requested, stoppable
from evorl.mdp.remote import Remote
from evorl.nets.policy import Net
from evorl.rl.evaluation import play_episodes
from evorl.rl.ppo import PPO
from evorl.training.train import spec


async def never(*told: object) -> None:
    await asyncio.sleep(3600)


@pytest.mark.parametrize("kind", ["battles", "remote", "godot_rl"])
def test_a_signal_ends_an_evaluation_that_waits_for_its_world(kind: str, tmp_path: Path) -> None:
    """The games below freeze, and nothing else would end the wait for them within an hour."""
    commands = {
        "remote": f"{FAULTY} freeze {tmp_path / 'mark'} 3",
        "godot_rl": f"{GAME} blind {tmp_path / 'mark'}",
    }
    protocol: Any = "evorl" if kind == "remote" else kind
    world = (
        Walk(event=never) if kind == "battles" else Remote(protocol=protocol, command=commands[kind], deadline_s=3600.0)
    )
    asked = threading.Event()
    told = stop_requested.set(asked.is_set)
    timer = threading.Timer(1.0, asked.set)
    with closing(world):
        learner = PPO(net=Net(hidden=(4,))).learner(spec(world), 0, torch.device("cpu"))
        timer.start()
        try:
            with stoppable(), pytest.raises(Stopped):
                play_episodes(learner, world, 0, 3, deterministic=True)
        finally:
            stop_requested.reset(told)
            timer.cancel()
