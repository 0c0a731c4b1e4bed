"""EnvPool's environments by id: an episode follows its seed, and ids that cannot be had are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import go

from evorl.mdp.conformance import check
from evorl.mdp.gymnasium.envpool import EnvPoolEnv
from evorl.mdp.gymnasium.world import Gymnasium
from evorl.training.train import spec
from evorl.util.errors import BadRequest

pytest.importorskip("envpool")


@pytest.mark.slow_cases(but=("CartPole-v1",))
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Pong-v5"])
def test_it_conforms(name: str) -> None:
    check(Gymnasium(id=f"envpool/{name}"), decisions=40)


def test_an_episode_is_that_of_its_seed_whatever_was_played_before() -> None:
    env = EnvPoolEnv("CartPole-v1")

    def episode(seed: int) -> list[bytes]:
        seen, _ = env.reset(seed=seed)
        states = [seen.tobytes()]
        while len(states) < 30:
            seen, _, terminated, truncated, _ = env.step(len(states) % 2)
            states.append(seen.tobytes())
            if terminated or truncated:
                break
        return states

    first = episode(3)
    assert episode(4) != first and episode(3) == first
    without, _ = env.reset()
    assert env.observation_space.contains(np.asarray(without))
    env.close()


def test_keywords_are_those_of_envpool() -> None:
    assert spec(Gymnasium(id="envpool/Pong-v5", kwargs={"stack_num": 2})).inputs[0].shape == (2, 84, 84)


@pytest.mark.parametrize(
    ("id", "told"),
    [("envpool/CartPol-v1", "EnvPool has no CartPol-v1; did you mean CartPole-v1"),
     ("envpool/gfootball/academy_corner-v1", "take mdp=football"),
     ("envpool/ParkingParked-v9", "EnvPool has no ParkingParked-v9")],
)  # fmt: skip
def test_it_refuses(id: str, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        Gymnasium(id=id).ready()


@pytest.mark.slow  # the world conforms, and runs of others resume in tests/jobs
def test_a_run_resumes_with_the_same_bits(tmp_path: Path) -> None:
    words = ("+debug=tiny", "mdp=gymnasium", "mdp.id=envpool/CartPole-v1", "rl.slots=2", "rl.minibatch=32")
    assert go(*words, "budget.steps=512", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    assert go(*words, "budget.steps=256", f"hydra.run.dir={tmp_path / 'part'}") == 0
    assert go(f"resume={tmp_path / 'part'}", "budget.steps=512") == 0
    ends = [next((tmp_path / name / "checkpoints").glob("*512*/tensors.safetensors")) for name in ("whole", "part")]
    assert ends[0].read_bytes() == ends[1].read_bytes()
