"""Plays games by gfootball's own environment and by evorl's engine; exits with 0 if they are the same to the bit.

    python football_oracle.py SCENARIO SEED STEPS

gfootball's environments need a gym that is no longer maintained, of which names of base classes are all they use here.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from evorl.mdp.football.engine import ACTIONS, EVEN, LEFT, REVERSED, RIGHT, Engine
from evorl.mdp.football.frame import GOES_ON, checkpoints, picture, seen_by, simple115


class Wrapper:
    def __init__(self, env: Any) -> None:
        self.env = env


def module(name: str, **content: Any) -> None:
    sys.modules[name] = made = ModuleType(name)
    made.__dict__.update(content)


def theirs(scenario: str, seed: int) -> Any:
    bases = {name: type(name, (Wrapper,), {}) for name in ("Wrapper", "ObservationWrapper", "RewardWrapper")}
    module("gym.envs.registration", register=lambda **what: None)
    module("gym.envs", registration=sys.modules["gym.envs.registration"])
    module("gym.spaces")
    module("gym", Env=object, spaces=sys.modules["gym.spaces"], envs=sys.modules["gym.envs"], **bases)
    module("cv2")
    from gfootball.env import config, football_env

    values = {
        "level": scenario, "players": ["agent:left_players=1,right_players=1"], "game_engine_random_seed": seed,
        "reverse_team_processing": bool(seed & 1),
    }  # fmt: skip
    env = football_env.FootballEnv(config.Config(values))
    env.unwrapped = env
    return env


def main(scenario: str, seed: int, steps: int) -> None:
    env = theirs(scenario, seed)
    from gfootball.env.observation_preprocessing import generate_smm
    from gfootball.env.wrappers import CheckpointRewardWrapper, Simple115StateWrapper

    engine, draw = Engine(scenario), np.random.default_rng(seed)
    engine.begin(7, LEFT)  # what was played before does not matter
    engine.step([12, 0])
    for game in range(2):
        seen, paid, before = env.reset(), [0, 0], 0
        rewards = CheckpointRewardWrapper(env)
        even = EVEN if env._config["episode_number"] % 2 == 0 else 0
        frame = engine.begin(seed, LEFT | RIGHT | (REVERSED if seed & 1 else 0) | even)
        for step in range(steps):
            where = f"{scenario}, seed {seed}, game {game}, step {step}"
            numbers = np.stack([simple115(seen_by(frame, side)) for side in (0, 1)])
            pictures = np.stack([picture(seen_by(frame, side)) for side in (0, 1)])
            expected = Simple115StateWrapper.convert_observation(seen, True)
            assert (numbers == expected).all(), (where, np.argwhere(numbers != expected))
            assert (pictures == np.moveaxis(generate_smm(seen), -1, 1)).all(), where
            if frame["over"] != GOES_ON:
                break
            actions = draw.integers(0, len(ACTIONS), 2).tolist()
            if step % 7:  # games get somewhere
                actions = [5, 12] if step % 2 else [13, 5]
            seen, reward, done, _ = env.step(actions)
            frame = engine.step(actions)
            assert done == (frame["over"] != GOES_ON), where
            lead = int(frame["score"][0] - frame["score"][1])
            told = []
            for side, scored in enumerate((lead - before, before - lead)):
                extra, paid[side] = checkpoints(seen_by(frame, side), scored == 1, paid[side])
                told.append(scored + extra)
            assert np.allclose(rewards.reward(reward), told, atol=1e-6), (where, reward, told)
            before = lead


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
