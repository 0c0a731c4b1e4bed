"""Small environments of PettingZoo's two interfaces that the tests of evorl.mdp.pettingzoo share."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from pettingzoo import AECEnv, ParallelEnv

NAMES = ("ant", "bee", "cat")


class Parallel(ParallelEnv):  # type: ignore[misc]  # PettingZoo's classes have no types for mypy
    """Each agent counts its actions. The ant dies after 2 steps, the bee comes after 1, and all are cut after 5."""

    metadata = {"name": "counts", "render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, masks: bool = True, forgets: bool = True, fails_with: int = -1, render_mode: Any = None) -> None:
        self.possible_agents, self.masks, self.forgets = [*NAMES], masks, forgets
        self.fails_with, self.render_mode, self.episodes = fails_with, render_mode, 0

    def observation_space(self, agent: str) -> Any:
        return Box(-1, 99, (2 if agent == "ant" else 3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return Discrete(2 if agent == "ant" else 3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.draw, self.seed = np.random.Generator(np.random.PCG64(seed)), seed
        start = 0 if self.forgets else self.episodes
        self.t, self.episodes, self.sums = 0, self.episodes + 1, dict.fromkeys(NAMES, start)
        self.agents = ["ant", "cat"]
        return self._seen(), self._infos()

    def step(self, actions: dict[str, int]) -> Any:
        assert set(actions) == set(self.agents)
        if self.t == 3 and self.seed == self.fails_with:
            raise OSError("lost")
        self.t += 1
        for agent, action in actions.items():
            self.sums[agent] += action
        rewards = {agent: float(action) for agent, action in actions.items()}
        terminations = {agent: agent == "ant" and self.t == 2 for agent in actions}
        truncations = dict.fromkeys(actions, self.t == 5)
        seen, infos = self._seen(), self._infos()
        self.agents = [agent for agent in actions if not (terminations[agent] or truncations[agent])]
        if self.t == 1:
            self.agents.append("bee")
            seen["bee"], infos["bee"] = self._look("bee"), self._info("bee")
        return seen, rewards, terminations, truncations, infos

    def _look(self, agent: str) -> Any:
        seen = [self.t, self.sums[agent], self.draw.integers(50)]
        return np.array(seen[: 2 if agent == "ant" else 3], np.float32)

    def _info(self, agent: str) -> dict[str, Any]:
        mask = np.ones(2 if agent == "ant" else 3, np.int8)
        mask[0] = self.t == 0
        return {"sum": self.sums[agent], **({"action_mask": mask} if self.masks else {})}

    def _seen(self) -> dict[str, Any]:
        return {agent: self._look(agent) for agent in self.agents}

    def _infos(self) -> dict[str, Any]:
        return {agent: self._info(agent) for agent in self.agents}

    def render(self) -> Any:
        return np.full((4, 4, 3), 10 * self.t, np.uint8)


class Counted(Parallel):
    """Tells how often each one was closed. So many steps or resets fail, and then to close it does."""

    made: ClassVar[list[Counted]] = []
    fails: ClassVar[Counter[str]] = Counter()

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        self.closed, self.broken = 0, False
        self.made.append(self)

    def fail(self, where: str) -> None:
        if self.fails[where]:
            self.fails[where] -= 1
            self.broken = True
            raise OSError("lost")

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.fail("reset")
        return super().reset(seed, options)

    def step(self, actions: dict[str, int]) -> Any:
        self.fail("step")
        return super().step(actions)

    def close(self) -> None:
        self.closed += 1
        if self.broken:
            raise OSError("there is nothing to close")


class Turns(AECEnv):  # type: ignore[misc]  # PettingZoo's classes have no types for mypy
    """Agents take turns; each action is a gift to the next agent. The ant dies after two of them, the others later."""

    metadata = {"name": "gifts", "render_modes": [], "is_parallelizable": False}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = [*NAMES]

    def observation_space(self, agent: str) -> Any:
        return Dict({"observation": Box(0, 99, (2,), np.float32), "action_mask": Box(0, 1, (3,), np.int8)})

    def action_space(self, agent: str) -> Any:
        return Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = [*NAMES]
        self.luck = int(np.random.Generator(np.random.PCG64(seed)).integers(50))
        self.turns = dict.fromkeys(NAMES, 0)
        self.rewards = dict.fromkeys(NAMES, 0.0)
        self._cumulative_rewards = dict.fromkeys(NAMES, 0.0)
        self.terminations, self.truncations = dict.fromkeys(NAMES, False), dict.fromkeys(NAMES, False)
        self.infos = {name: {"turns": 0} for name in NAMES}
        self._skip_agent_selection = None
        self.agent_selection = "bee"

    def observe(self, agent: str) -> Any:
        mask = np.array([0, 1, 1], np.int8) if agent == self.agent_selection else np.zeros(3, np.int8)
        return {"observation": np.array([self.turns[agent], self.luck], np.float32), "action_mask": mask}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            return self._was_dead_step(action)
        assert action in (1, 2)
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self.rewards[following] = float(action)
        self.turns[agent] += 1
        self.infos[agent]["turns"] = self.turns[agent]
        self.terminations[agent] = self.turns[agent] == 2 and agent == "ant"
        self.truncations[agent] = self.turns[agent] == 3 and agent != "ant"
        self._accumulate_rewards()
        self.agent_selection = following
        self._deads_step_first()


class UnlikeTurns(Turns):
    """The same with several choices in an action, of which each agent has other numbers."""

    def observation_space(self, agent: str) -> Any:
        return Box(0, 99, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return MultiDiscrete([2, 3] if agent == "bee" else [3, 2])

    def observe(self, agent: str) -> Any:
        return super().observe(agent)["observation"]

    def step(self, action: Any) -> None:
        super().step(None if action is None else 1 + int(action[0]) % 2)


def strange(**kwargs: Any) -> Any:
    """Agents whose actions are of different kinds."""
    env = Parallel(**kwargs)
    env.action_space = lambda agent: Discrete(2) if agent == "ant" else Box(0, 1, (2,))  # type: ignore[method-assign]
    return env


class Pictured(Parallel):
    """Its agents see pictures, channels last, all the same one."""

    def observation_space(self, agent: str) -> Any:
        return Box(0, 255, (6, 5, 3), np.uint8)

    def _look(self, agent: str) -> Any:
        return np.arange(90, dtype=np.uint8).reshape(6, 5, 3) + np.uint8(self.seed % 50)


class Doubled:
    """A wrapper that doubles rewards."""

    def __new__(cls, env: Any) -> Any:
        step = env.step

        def doubled(actions: Any) -> Any:
            seen, rewards, *rest = step(actions)
            return seen, {agent: 2 * reward for agent, reward in rewards.items()}, *rest

        env.step = doubled
        return env


class Unlike(ParallelEnv):  # type: ignore[misc]  # PettingZoo's classes have no types for mypy
    """One agent sees a map and takes two choices, or two numbers; the other one sees a signal and takes one.

    A step rewards who did what its observation says.
    """

    metadata = {"name": "unlike", "render_modes": []}  # noqa: RUF012

    def __init__(self, numbers: bool = False, steps: int = 8) -> None:
        self.possible_agents, self.numbers, self.steps = ["scout", "base"], numbers, steps

    def observation_space(self, agent: str) -> Any:
        row = Box(-1, 1, (4 if agent == "base" else 2,), np.float32)
        return Dict({"map": Box(-1, 1, (3, 2), np.float32), "at": row}) if agent == "scout" else row

    def action_space(self, agent: str) -> Any:
        if self.numbers:
            return Box(-1, 1, (1,), np.float32) if agent == "base" else Box(0, 4, (2,), np.float32)
        return Discrete(4) if agent == "base" else MultiDiscrete([2, 3])

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.draw, self.t, self.agents = np.random.Generator(np.random.PCG64(seed)), 0, [*self.possible_agents]
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert all(self.action_space(agent).contains(action) for agent, action in actions.items())
        self.t += 1
        scout, base = actions["scout"], actions["base"]
        if self.numbers:
            rewards = {"scout": -abs(float(scout[0]) - 3 * self.side), "base": -abs(float(base[0]) - self.side)}
        else:
            rewards = {"scout": float(scout[0] == self.side), "base": float(base == self.signal)}
        over = dict.fromkeys(self.agents, self.t == self.steps)
        self.agents = [] if self.t == self.steps else self.agents
        return self._look(), rewards, over, dict.fromkeys(over, False), {agent: {} for agent in over}

    def _look(self) -> dict[str, Any]:
        self.signal, self.side = int(self.draw.integers(4)), int(self.draw.integers(2))
        place = np.full((3, 2), 2.0 * self.side - 1, np.float32)
        return {
            "scout": {"map": place, "at": np.zeros(2, np.float32)}, "base": np.eye(4, dtype=np.float32)[self.signal]
        }  # fmt: skip
