"""Training with other rewards: the return of an episode stays that of the world, in every kind of world."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from harness import experiment_of
from remote_games import TAG

from evorl.mdp.begin import begin
from evorl.mdp.core import Array, World
from evorl.mdp.random_play import random_action
from evorl.mdp.remote import Remote
from evorl.mdp.reward_terms import Rewarded, Terms
from evorl.mdp.shaped import Shaped
from evorl.training.train import spec
from evorl.util.seed import Episodes, generator

WORLDS: dict[str, World] = {
    "vector": experiment_of("mdp=pong", "mdp.opponent=self", "mdp.rounds=1", "mdp.round_steps=100").mdp,
    "gymnasium": experiment_of("mdp=cartpole", "mdp.reward_scale=0.5").mdp,
    "coroutines": experiment_of("mdp=duel", "mdp.side=both", "mdp.ground.limit=3").mdp,
    "remote": Remote(command=TAG),
    "repeats": experiment_of("mdp=pong", "mdp.frame_skip=[2,3]", "mdp.rounds=1", "mdp.round_steps=100").mdp,
}
EPISODES = 3
GAMMA = 0.9


def returns(world: World) -> list[list[float]]:
    """Those of the first episodes of each slot, as `evorl.rl.actor.Player` takes them."""
    slots = 2 * world.sides
    found: list[list[float]] = [[] for _ in range(slots)]
    with closing(begin(world, slots, Episodes(3))) as arena:
        totals, number = np.zeros((slots, len(arena.spec.rewards))), [0] * slots
        while min(map(len, found)) < EPISODES:
            now = arena.recv()
            totals[now.slots] += now.reward[now.slots]
            for slot, results in now.results:
                found[slot].append(results.get("return", sum(totals[slot].tolist())))
            totals[now.slots[now.terminated[now.slots] | now.truncated[now.slots]]] = 0
            actions = []
            for slot in now.slots.tolist():
                number[slot] += 1
                draw = generator("own returns", slot, number[slot])
                actions.append(random_action(arena.spec, None if now.legal is None else now.legal[slot], draw))
            arena.send(now.slots, np.stack(actions))
    return [each[:EPISODES] for each in found]


@pytest.mark.parametrize("kind", WORLDS)
def test_the_return_of_an_episode_is_that_of_the_world(kind: str) -> None:
    world = WORLDS[kind]
    with closing(world):
        game = spec(world)
        terms = Terms(weights={game.rewards[0]: 3.0}, potential={f"{game.inputs[0].name}_0": 2.0})
        own = returns(world)
        assert len({value for each in own for value in each}) > 1
        assert returns(Rewarded(world=world, terms=terms, gamma=GAMMA)) == own
        assert returns(Shaped(world=world, kind="immediate", reward=ones, gamma=GAMMA)) == own


def ones(inputs: tuple[Array, ...]) -> Array:
    return np.ones(len(inputs[0]))
