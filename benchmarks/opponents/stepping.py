"""Steps per second of PettingZoo's environments in evorl's arena, beside the bare environment.

Both play the same actions, drawn at random before, in one process and one thread; an environment step is one of all
agents, or in turns that of one. Of the arena they include what a policy sees: observations as arrays, rewards, ends and
masks. A number is the median of the samples, in which both take turns. Two environments need packages that evorl does
not install: ``pip install pymunk multi-agent-ale-py``.

    python benchmarks/opponents/stepping.py [--samples 7] [--seconds 3] [--games 8] [--out benchmarks/opponents/results]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from benchmarks.speed.common import alternate, arguments, machine, median, page, save
from evorl.mdp.core import Action, Arena, Box, heads
from evorl.mdp.gymnasium import spaces
from evorl.mdp.pettingzoo.world import PettingZoo
from evorl.util.seed import Episodes, generator

AIM = 0.85
CASES: dict[str, dict[str, Any]] = {
    "mpe2.simple_spread_v3": {"kwargs": {"max_cycles": 100}},
    "mpe2.simple_tag_v3": {"kwargs": {"max_cycles": 100}},
    "pettingzoo.sisl.multiwalker_v9": {},
    "pettingzoo.butterfly.pistonball_v6": {},
    "pettingzoo.atari.pong_v3": {},
}
DRAWN = 4096


def drawn(action: Action, *shape: int) -> Any:
    """Random actions [*shape, K]."""
    draw = generator("actions")
    if isinstance(action, Box):
        return draw.uniform(np.maximum(action.low, -1), np.minimum(action.high, 1), (*shape, len(action.low)))
    return draw.integers(0, heads(action), (*shape, len(heads(action))))


def bare(world: PettingZoo) -> Callable[[float], float]:
    """A parallel environment, its agents' actions and observations as they are."""
    env = world.make()
    each = [spaces.encode(agent.actions, drawn(agent.action, DRAWN)) for agent in world.form.agents]
    actions = [dict(zip(env.possible_agents, row, strict=True)) for row in zip(*each, strict=True)]
    env.reset(seed=0)

    def steps(seconds: float) -> float:
        began, count = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < seconds or not count:
            if not env.agents:
                env.reset(seed=count)
            action = actions[count % DRAWN]
            env.step(action if len(env.agents) == len(action) else {agent: action[agent] for agent in env.agents})
            count += 1
        return count / took

    return steps


def ours(world: PettingZoo, arena: Arena) -> Callable[[float], float]:
    actions = drawn(arena.spec.action, DRAWN, arena.slots)
    waiting = arena.recv().slots
    calls = 0

    def steps(seconds: float) -> float:
        nonlocal waiting, calls
        began, count = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < seconds or not count:
            arena.send(waiting, actions[calls % DRAWN][waiting])
            decisions = arena.recv()
            waiting, calls, count = decisions.slots, calls + 1, count + decisions.cost
        return count / took

    return steps


def main() -> None:
    args = arguments(__doc__, samples=7, seconds=3.0, games=8)
    facts, data, rows = machine(), {}, []
    for world in [PettingZoo(id=id, **keys) for id, keys in CASES.items()]:
        with closing(world.arena(args.games * world.sides, Episodes(0, "stepping"))) as arena:
            contestants = {"bare": bare(world), "evorl": ours(world, arena)}
            timed = {name: lambda _, steps=steps: steps(args.seconds) for name, steps in contestants.items()}
            data[world.id] = samples = alternate(timed, range(args.samples))
        own, other = median(samples["evorl"]), median(samples["bare"])
        numbers = f"{other:,.0f}", f"{own:,.0f}", f"{own / other:.0%}", f"{AIM:.0%}"
        rows.append([world.id, str(len(world.side_names)), *numbers])
        header = ["environment", "agents", "bare", "evorl", "of the bare rate", "aim"]
        save(args.out, facts, page("Stepping PettingZoo", __doc__, header, rows), {"steps per second": data})


if __name__ == "__main__":
    main()
