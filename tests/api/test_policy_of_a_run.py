"""A loaded policy acts as the evaluation's own player does, on observations as environments give them."""

from __future__ import annotations

import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from evorl.api.policy import Policy
from evorl.mdp.forms import Mismatch
from evorl.mdp.gymnasium.world import Gymnasium
from evorl.mdp.pong.world import Pong
from evorl.nets.policy import Net
from evorl.rl.ppo import PPO
from evorl.rl.sac import SAC
from evorl.training.train import spec
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, seed31

CPU = torch.device("cpu")


class Parts(gymnasium.Env[Any, Any]):
    """Observations of several parts, one of them a picture, and legal actions by method."""

    observation_space = Dict(
        {"picture": Box(0, 255, (36, 40, 3), np.uint8), "pair": Tuple((Discrete(3, start=1), Box(-1, 1, (2,))))}
    )
    action_space = Discrete(5, start=10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action: int) -> Any:
        assert self.action_masks()[action - 10], "an illegal action"
        self.t += 1
        return self._seen(), float(action), self.t == 6, False, {}

    def action_masks(self) -> Any:
        return np.arange(5) == (2 * self.t) % 5

    def _seen(self) -> Any:
        picture = self.np_random.integers(0, 256, (36, 40, 3)).astype(np.uint8)
        return {"picture": picture, "pair": (self.np_random.integers(1, 4), np.full(2, self.t / 10, np.float32))}


class Heads(gymnasium.Env[Any, Any]):
    """Actions of two heads, each with its mask. Neither mask has the size of the other, nor of both together."""

    observation_space, action_space = Box(-1, 1, (2,)), MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, True, False, {}

    def action_masks(self) -> Any:
        return np.ones(5, bool)


def policy(world: Any, hyper: Any = None, seed: int = 3) -> Policy:
    return Policy((hyper or PPO()).learner(spec(world), seed, CPU), world)


WORLDS = {
    "vector": Gymnasium(id="CartPole-v1"),
    "parts, masked": Gymnasium(id=f"{__name__}:Parts"),
    "box": Gymnasium(id="Pendulum-v1"),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_loop_of_ones_own_plays_the_episodes_of_the_evaluation(world: Gymnasium) -> None:
    ours = policy(world, SAC() if world.id == "Pendulum-v1" else None)
    judged = ours.evaluate(episodes=3, seed=5)
    keys = Episodes(5, "evaluate", evaluation=True)
    env = world.make()
    for number, episode in enumerate(judged):
        (played,) = ours.play(env, seed=seed31(keys(number, 0)))
        assert played.length == episode.length
        assert played.ret == pytest.approx(episode.ret, rel=1e-4)  # a row's last bits depend on how many there are


def test_a_recurrent_policy_hands_its_state_on() -> None:
    world = Gymnasium(id="CartPole-v1")
    ours = policy(world, PPO(net=Net(lstm=8)))
    assert ours.recurrent
    seen = np.random.Generator(np.random.PCG64(1)).normal(size=(6, 4))
    states, state = [], None
    for row in seen:
        _, state = ours.act(row, state=state)
        states.append(state)
    learner = ours.learner
    carry, start = learner.carry(1), torch.ones(1, dtype=torch.bool)
    for row, expected in zip(seen, states, strict=True):
        x = (torch.tensor(row[None], dtype=torch.float32),)
        carry = learner.act(x, None, torch.zeros(1, 2), carry, start).carry
        start[:] = False
        assert torch.equal(carry, expected)
    both, state = ours.act(seen[:2])
    state[:, 1] = 0
    _, after = ours.act(seen[2:4], state=state)
    fresh, begun = ours.act(seen[3])
    torch.testing.assert_close(after[:, 1], begun[:, 0])
    assert len(both) == 2 and fresh in (0, 1)


def test_many_observations_are_decided_as_each_alone() -> None:
    ours = policy(Gymnasium(id="CartPole-v1"))
    seen = np.random.Generator(np.random.PCG64(1)).normal(size=(9, 4))
    assert ours.act(seen) == [ours.act(row) for row in seen] == ours.act(list(map(list, seen)))
    drawn = [ours.act(seen[0], deterministic=False) for _ in range(200)]
    assert {*drawn} == {0, 1}


def test_several_threads_may_ask_at_once() -> None:
    """Also for the first action of each form, which is recorded."""
    interval = sys.getswitchinterval()
    seen = np.random.Generator(np.random.PCG64(1)).normal(size=(20, 4, 4))
    wanted, rows = policy(Gymnasium(id="CartPole-v1")), [1, 2, 3, 4]
    answers = {n: [wanted.act(x[:n]) for x in seen] for n in rows}
    ours, together = policy(Gymnasium(id="CartPole-v1")), threading.Barrier(4)

    def asked(n: int) -> list[Any]:
        together.wait()
        return [ours.act(x[:n]) for x in seen]

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert dict(zip(rows, pool.map(asked, rows), strict=True)) == answers
    finally:
        sys.setswitchinterval(interval)
    assert [ours.act(x) for x in seen] == answers[4]


@pytest.mark.parametrize("env", [gymnasium.Env, "CartPole-v1", None])
def test_what_is_no_environment_is_refused(env: Any) -> None:
    with pytest.raises(BadRequest, match=r"^env: expected an environment, such as gymnasium.make\(...\) returns, got"):
        policy(CARTPOLE).play(env)


def test_a_vector_of_environments_is_refused() -> None:
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2)
    why = r"^env: play takes one environment, not a vector of them; evaluate\(\) plays many at once$"
    with pytest.raises(BadRequest, match=why):
        policy(CARTPOLE).play(envs)
    envs.close()


def test_a_world_of_our_own_takes_the_arrays_of_its_spec() -> None:
    ours = policy(Pong())
    shapes = [entry.shape for entry in ours.spec.inputs]
    arrays = tuple(np.zeros(shape, np.float32) for shape in shapes)
    named = {entry.name: x for entry, x in zip(ours.spec.inputs, arrays, strict=True)}
    batch = tuple(np.zeros((4, *shape), np.float32) for shape in shapes)
    assert ours.act(arrays) == ours.act(named) == ours.act(batch)[0]
    assert len(ours.act(batch)) == 4


def test_illegal_actions_are_not_taken() -> None:
    ours, seen = policy(WORLDS["parts, masked"]), Parts().reset(seed=1)[0]
    for choice in range(5):
        assert ours.act(seen, legal=np.arange(5) == choice) == 10 + choice
    assert ours.act(seen) in range(10, 15)
    with pytest.raises(Mismatch, match="legal"):
        ours.act(seen, legal=np.ones(4, bool))


def test_a_mask_and_a_state_that_nothing_would_look_at_are_refused() -> None:
    ours, seen = policy(Gymnasium(id="CartPole-v1")), np.zeros(4)
    assert ours.act(seen, legal=None, state=None) == ours.act(seen)
    with pytest.raises(
        BadRequest, match=r"^legal: this policy takes no mask, since its world declares none \(masked\)$"
    ):
        ours.act(seen, legal=[1, 0])
    with pytest.raises(BadRequest, match=r"^state: this policy has no memory \(rl.net.lstm\), so it takes no state$"):
        ours.act(seen, state=torch.zeros(2, 1, 8))


def test_a_mask_of_lists_is_that_of_the_array() -> None:
    """The rows of a batch of masks were taken for masks of heads."""
    ours, seen = policy(WORLDS["parts, masked"]), Parts().reset(seed=1)[0]
    many = {"picture": np.stack([seen["picture"]] * 5), "pair": tuple(np.stack([x] * 5) for x in seen["pair"])}
    choices = [1, 2, 3, 4, 0]
    for mask in (np.eye(5)[choices].astype(int), np.eye(5, dtype=bool)[choices]):
        for legal in (mask, mask.tolist(), [*mask], tuple(mask.tolist())):
            assert ours.act(many, legal=legal) == [10 + choice for choice in choices]
        assert ours.act(seen, legal=tuple(mask[0].tolist())) == ours.act(seen, legal=[mask[0].tolist()]) == 11


def test_a_mask_leaves_a_choice() -> None:
    """The policy would take one of the actions that no mask allows."""
    ours, seen = policy(WORLDS["parts, masked"]), Parts().reset(seed=1)[0]
    with pytest.raises(Mismatch, match=r"^legal allows at least one action, and the caller gave none$"):
        ours.act(seen, legal=np.zeros(5, bool))
    ours, seen = policy(Gymnasium(id=f"{__name__}:Heads")), np.zeros((2, 2))
    with pytest.raises(Mismatch, match=r"^legal of head 1 allows .*, and the caller gave none in row 1$"):
        ours.act(seen, legal=[[1, 0, 1, 0, 0], [1, 1, 0, 0, 0]])
    with pytest.raises(Mismatch, match=r"^legal of head 0 allows .* in row 0$"):
        ours.act(seen, legal=([[0, 0], [1, 0]], [[1, 0, 0], [0, 0, 1]]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e300])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    why = r"^the input '\w+' has finite numbers in float32, and the caller gave (nan|-?inf)$"
    for seen in ([0.0, number, 0.0, 0.0], np.full((3, 4), number)):
        with pytest.raises(Mismatch, match=why):
            policy(CARTPOLE).act(seen)
    with pytest.raises(Mismatch, match=why):
        policy(Pong()).act(np.full(policy(Pong()).spec.inputs[0].shape, number))
    assert policy(CARTPOLE).act([0.0, 1e30, 0.0, 0.0]) in (0, 1), "the sum of its squares is infinite"


def inputs_of(ours: Policy, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that the network gets."""
    seen = list[Any]()
    play = ours._decide
    monkeypatch.setattr(ours, "_decide", lambda inputs, *rest: seen.append(inputs) or play(inputs, *rest))
    ours.act(*arguments)
    return seen[0]


def test_pictures_are_bytes_and_other_inputs_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network takes other numbers than bytes as they are, and scales bytes."""
    ours, seen = policy(WORLDS["parts, masked"]), Parts().reset(seed=1)[0]
    usual = inputs_of(ours, monkeypatch, seen)
    assert [x.dtype for x in usual] == [torch.float32, torch.float32, torch.uint8]
    for picture in (seen["picture"].astype(np.int64), seen["picture"].tolist(), torch.from_numpy(seen["picture"])):
        again = inputs_of(ours, monkeypatch, {**seen, "picture": picture})
        assert all(map(torch.equal, usual, again)) and again[2].dtype == torch.uint8
    for picture in (seen["picture"].astype(np.int64) + 1000, seen["picture"] / 2):
        with pytest.raises(Mismatch, match=r"picture' is declared uint8 \[36, 40, 3\] from 0 to 255, and the"):
            ours.act({**seen, "picture": picture})
    pong = policy(Pong())
    assert inputs_of(pong, monkeypatch, np.zeros(pong.spec.inputs[0].shape, np.uint8))[0].dtype == torch.float32


def test_tensors_are_data_as_arrays_are() -> None:
    ours, rows = policy(CARTPOLE), torch.linspace(-1, 1, 8).reshape(2, 4)
    assert ours.act(rows.clone().requires_grad_()) == ours.act(rows) == ours.act(rows.numpy())
    ours, seen = policy(WORLDS["parts, masked"]), Parts().reset(seed=1)[0]
    assert ours.act(seen, legal=torch.eye(5)[3].bool()) == 13


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_tensors_of_a_gpu_are_moved() -> None:
    rows = torch.linspace(-1, 1, 8).reshape(2, 4)
    assert policy(CARTPOLE).act(rows.cuda()) == policy(CARTPOLE).act(rows)


def test_each_head_may_have_its_mask() -> None:
    ours, seen = policy(Gymnasium(id=f"{__name__}:Heads")), np.zeros(2)
    for legal in ([0, 1, 1, 0, 0], ([0, 1], [1, 0, 0]), [[0, 1], [1, 0, 0]], (np.eye(2)[1] > 0, np.eye(3)[0] > 0)):
        assert ours.act(seen, legal=legal).tolist() == [1, 0]
    two = np.zeros((2, 2))
    whole = [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    for many in (whole, np.array(whole), ([[0, 1], [1, 0]], [[1, 0, 0], [0, 0, 1]])):
        assert np.stack(ours.act(two, legal=many)).tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize(
    "legal",
    [[1, 0], [[1, 1], [1, 1]], ([1, 1],), ([1, 1], [1, 1]), [[1] * 5] * 3, ([[1, 1]] * 3, [[1, 1, 1]] * 3), [2] * 5],
    ids=["short", "square", "one head", "sizes", "rows", "rows of heads", "numbers"],
)
def test_another_mask_is_refused(legal: Any) -> None:
    with pytest.raises(Mismatch, match=r"^legal( of head \d)? is declared bool .*, and the caller gave"):
        policy(Gymnasium(id=f"{__name__}:Heads")).act(np.zeros((2, 2)), legal=legal)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (
            torch.zeros(2, 1, 8),
            r"state of so many observations is float32 \[2, 3, 8\], and the caller gave .*\[2, 1, 8\]",
        ),
        (torch.zeros(2, 3, 8, dtype=torch.float64), "the caller gave float64"),
        (np.zeros((2, 3, 8)), "state is the tensor that act returned, and the caller gave a ndarray"),
    ],
    ids=["of another batch", "dtype", "array"],
)
def test_another_state_is_refused(state: Any, why: str) -> None:
    """Torch would broadcast the state of one episode to many."""
    ours = policy(Gymnasium(id="CartPole-v1"), PPO(net=Net(lstm=8)))
    with pytest.raises(Mismatch, match=why):
        ours.act(np.zeros((3, 4)), state=state)


CARTPOLE, PARTS = Gymnasium(id="CartPole-v1"), WORLDS["parts, masked"]
PICTURE, PAIR = np.zeros((36, 40, 3), np.uint8), (1, np.zeros(2, np.float32))
REFUSED = {
    "shape": (CARTPOLE, [0, 1, 2], r"is declared float32 \[4\], and the caller gave int64 \[3\]"),
    "text": (CARTPOLE, "none", "declared"),
    "batch": (CARTPOLE, np.zeros((2, 5)), r"\[2, 4\]"),
    "no row": (CARTPOLE, np.zeros((0, 4)), r"'observation' has no rows: the caller gave \[0, 4\]"),
    "none": (CARTPOLE, None, "the caller gave None"),
    "axes": (CARTPOLE, np.zeros((1, 2, 4)), r"the caller gave float64 \[1, 2, 4\]"),
    "ragged": (CARTPOLE, [[0.0] * 4, [0.0] * 3], "no array"),
    "none of Pong": (Pong(), None, "the caller gave None"),
    "no row of Pong": (Pong(), np.zeros((0, 10)), "has no rows"),
    "names": (Pong(), {"observation": np.zeros(10)}, "^the inputs are game, and the caller gave observation$"),
    "numbers": (Pong(), (0.0,) * 10, r"a tuple has a part for each input \(game\), and the caller gave 10$"),
    "list for a dict": (PARTS, [PICTURE, PAIR], "'observation' is declared a dict of 2, not a list"),
    "no dict": (PARTS, None, "'observation' is declared a dict of 2, not a NoneType"),
    "name": (PARTS, {"picture": PICTURE}, "the observation lacks 'pair', which its space declares"),
    "further name": (PARTS, {"picture": PICTURE, "pair": PAIR, "x": 1}, "has 'x', which its space does not declare"),
    "dict for a tuple": (PARTS, {"picture": PICTURE, "pair": {0: 1}}, "'pair' is declared a tuple of 2, not a dict"),
    "number for a tuple": (PARTS, {"picture": PICTURE, "pair": 1}, "'pair' is declared a tuple of 2, not a int"),
    "part": (PARTS, {"picture": PICTURE, "pair": (1,)}, "the observation lacks 'pair/1'"),
    "further part": (PARTS, {"picture": PICTURE, "pair": (*PAIR, 1)}, "has 'pair/2', which its space does not"),
    "rows": (PARTS, {"picture": PICTURE[None], "pair": PAIR}, "the caller gave"),
    "unlike rows": (
        PARTS,
        {"picture": PICTURE[None], "pair": (np.ones(2, int), np.zeros((2, 2), np.float32))},
        "and the caller gave 2 of the input 'pair/0', 2 of the input 'pair/1', 1 of the input 'picture'",
    ),
}


@pytest.mark.parametrize(("world", "seen", "why"), REFUSED.values(), ids=REFUSED)
def test_another_observation_is_refused(world: Any, seen: Any, why: str) -> None:
    with pytest.raises(Mismatch, match=why):
        policy(world).act(seen)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"episodes": 0}, "^episodes: expected int >= 1, got 0$"),
        ({"episodes": -1}, "^episodes: expected int >= 1, got -1$"),
        ({"episodes": 2.5}, "^episodes: expected int >= 1, got 2.5$"),
        ({"seed": -1}, "^seed: expected int >= 0, got -1$"),
        ({"seed": 1.5}, "^seed: expected int >= 0, got 1.5$"),
    ],
)
def test_episodes_and_seeds_are_checked_as_by_the_command(keys: Any, why: str) -> None:
    ours = policy(CARTPOLE)
    with pytest.raises(BadRequest, match=why):
        ours.evaluate(**keys)
    with pytest.raises(BadRequest, match=why):
        ours.play(CARTPOLE.make(), **keys)


def test_seeds_and_numbers_may_be_those_of_numpy() -> None:
    ours, env = policy(CARTPOLE), CARTPOLE.make()
    numbers = {"episodes": np.int64(2), "seed": np.int64(3)}
    assert ours.play(env, **numbers) == ours.play(env, episodes=2, seed=3)
    assert ours.evaluate(**numbers) == ours.evaluate(episodes=2, seed=3)
    with pytest.raises(BadRequest, match=r"^max_steps: expected int >= 1, got 0$"):
        ours.play(env, max_steps=0)


def test_actions_are_those_of_the_environment() -> None:
    world = Gymnasium(id="Pendulum-v1")
    action = policy(world, SAC()).act(np.zeros(3))
    assert world.make().action_space.contains(action)


def test_an_episode_without_an_end_is_left(caplog: pytest.LogCaptureFixture) -> None:
    ours = policy(WORLDS["parts, masked"])
    played = ours.play(Parts(), episodes=2, seed=1, max_steps=4)
    assert [episode.length for episode in played] == [4, 4]
    assert caplog.text.count("an episode had no end and was left after 4 steps (max_steps)") == 2
    (whole,) = ours.play(Parts(), seed=1)
    assert whole.length == 6 and len(caplog.records) == 2


def test_a_policy_that_observes_more_than_its_environment_tells_takes_the_arrays_of_its_spec() -> None:
    world = Gymnasium(id="CartPole-v1", features=("length",))
    one = policy(world)
    assert [entry.name for entry in one.spec.inputs][1:] == ["results"]
    env = gymnasium.make("CartPole-v1")
    seen, _ = env.reset(seed=0)
    assert one.act((seen, np.array([3], np.float32))) in (0, 1)
    with pytest.raises(BadRequest, match=r"this policy observes .*, results, and an environment alone does not tell"):
        one.play(env)
