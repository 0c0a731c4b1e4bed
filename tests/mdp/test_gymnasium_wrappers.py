"""Wrappers of gymnasium by list in the config, and numbers of infos as results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from harness import QUICK, go

from evorl.mdp.conformance import check
from evorl.mdp.core import Decisions
from evorl.mdp.forms import Mismatch
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.gymnasium.wrappers import INSTEAD, parsed, transform_only
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, generator, seed31

HERE = "test_gymnasium_wrappers"


class Goal(gymnasium.Env[Any, Any]):
    """Walk to the right; a success if the walker is there after at most four steps. Four steps a side of luck."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(2)), 0
        return self._seen(), {"is_success": False}

    def _seen(self) -> Any:
        return np.array([self.at, self.steps], np.float32)

    def step(self, action: Any) -> Any:
        self.at, self.steps = self.at + 2 * int(action) - 1, self.steps + 1
        there = self.at >= 3
        return self._seen(), 1.0, there, self.steps == 5, {"is_success": there, "at": self.at, "word": "x"}


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    def __init__(self, env: Any, by: float = 2.0, fails: bool = False) -> None:
        super().__init__(env)
        if fails:
            raise RuntimeError("the wrapper was off")
        self.by = by

    def reward(self, reward: Any) -> float:
        return self.by * float(reward)


class Twice(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Steps twice, so it counts steps differently."""

    def step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        return outcome if outcome[2] or outcome[3] else self.env.step(action)


def world(*wrappers: Any, **keys: Any) -> Gymnasium:
    return Gymnasium(id=f"{HERE}:Goal", wrappers=wrappers, **keys)


def played(made: Gymnasium, steps: int = 60, slots: int = 3) -> list[tuple[int, dict[str, float]]]:
    """The results of the episodes of a fixed sequence of actions."""
    arena, results = made.arena(slots, Episodes(1)), []
    for step in range(steps):
        decisions: Decisions = arena.recv()
        results += decisions.results
        arena.send(decisions.slots, (decisions.slots[:, None] + step * step) % 3 // 2)
    arena.close()
    return results


def by_hand(slot: int, episodes: int, *around: Any) -> list[dict[str, float]]:
    """The results of a slot's first episodes, by stepping gymnasium's own environment."""
    env: Any = Goal()
    for kind, kwargs in around:
        env = kind(env, **kwargs)
    keys, found, step = Episodes(1), [], 0
    for n in range(episodes):
        env.reset(seed=seed31(int(keys(slot, n))))
        total, length, over = 0.0, 0, False
        while not over:
            _, reward, terminated, truncated, info = env.step((slot + step * step) % 3 // 2)
            total, length, step, over = total + reward, length + 1, step + 1, terminated or truncated
        found.append(
            {"return": total, "length": length, "is_success": float(info["is_success"]), "at": float(info["at"])}
        )
    return found


def test_wrappers_go_around_in_order_and_infos_are_results() -> None:
    doubled, named = f"{HERE}:Doubled", ("is_success", "at")
    made = world(doubled, {doubled: {"by": 5.0}}, {"FrameStackObservation": {"stack_size": 3}}, results=named)
    results = played(made)
    around = [(Doubled, {}), (Doubled, {"by": 5.0}), (gymnasium.wrappers.FrameStackObservation, {"stack_size": 3})]
    for slot in range(3):
        own = [result for at, result in results if at == slot]
        assert len(own) > 5 and own == by_hand(slot, len(own), *around)
    assert {result["is_success"] for _, result in results} == {0.0, 1.0}
    assert made.arena(2, Episodes(0)).spec.inputs[0].shape == (3, 2)


def test_a_wrapped_world_conforms() -> None:
    check(world("FlattenObservation", {"RescaleObservation": {"min_obs": -1, "max_obs": 1}}, results=("at",)))


@pytest.mark.parametrize(("wrappers", "longest"), [((), 7), ((f"{HERE}:Doubled",), 7), ((f"{HERE}:Twice",), None)])
def test_the_longest_episode_is_known_if_wrappers_only_transform(
    wrappers: tuple[str, ...], longest: int | None
) -> None:
    made = world(*wrappers, time_limit=7)
    assert made.longest_episode == longest and transform_only(parsed(wrappers)) == (longest is not None)
    if longest is None:
        with pytest.raises(BadRequest, match="wrappers: some of them may count steps differently"):
            made.capped(3)


@pytest.mark.parametrize(
    ("wrappers", "line"),
    [
        (["TimeAwareObservatoin"], "gymnasium.wrappers has no wrapper TimeAwareObservatoin; did you mean TimeAware"),
        ([f"{HERE}:Dubled"], f"{HERE} has no wrapper Dubled; did you mean Doubled"),
        ([f"{HERE}:Goal"], f"{HERE} has no wrapper Goal"),
        (["no_such_module:X"], "no_such_module cannot be imported"),
        ([{f"{HERE}:Doubled": {"buy": 2}}], "Doubled cannot be made: .*buy"),
        ([{f"{HERE}:Doubled": {"fails": True}}], "Doubled cannot be made: .*the wrapper was off"),
        *(([name], f"{name} has no place here; use ") for name in INSTEAD),
    ],
)
def test_wrappers_that_cannot_be_are_refused(wrappers: list[Any], line: str) -> None:
    with pytest.raises(BadRequest, match=line) as refused:
        world(*wrappers).ready()
    assert refused.value.key == "wrappers"


@pytest.mark.parametrize("entry", ["", "a b", "module:", ":Class", "os.system('x')", {"A": {}, "B": {}}, {}])
def test_what_names_no_wrapper_is_refused_at_once(entry: Any) -> None:
    with pytest.raises(BadRequest) as refused:
        world(entry)
    assert refused.value.key == "wrappers"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", r"^the last info of .*Goal.* has no 'missing'; there are: at, is_success, word$"),
        ("is_sucess", r"has no 'is_sucess'; did you mean is_success\?$"),
        ("word", r"info\['word'\]"),
    ],
)
def test_an_info_without_the_number_is_told_before_the_run_and_ends_it(name: str, why: str) -> None:
    with pytest.raises(Mismatch, match=why):
        played(world(results=(name,)))
    with pytest.raises(BadRequest, match=why.replace("^", "^mdp.results: ")) as refused:
        world(results=("at", name)).check_results()
    assert refused.value.key == "mdp.results"
    world(results=("at", "is_success")).check_results()


@pytest.mark.parametrize("words", [("rl=ppo",), ("ec=openai_es",)])
def test_a_result_that_no_info_has_is_refused_before_anything_is_written(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go("mdp=cartpole", "mdp.results=[is_success]", *words, f"hydra.run.dir={tmp_path / 'a'}") == 2
    line = "evorl: mdp.results: the last info of CartPole-v1 has no 'is_success'; there are: nothing\n"
    assert capsys.readouterr().err == line and not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["return", "length", "a b", "return_x"])
def test_results_cannot_have_names_of_others(name: str) -> None:
    with pytest.raises(BadRequest) as refused:
        world(results=(name,))
    assert refused.value.key == "results"


def test_modules_of_wrappers_must_be_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "mdp=gymnasium",
        "mdp.id=CartPole-v1",
        "mdp.wrappers=[my_wrappers:W]",
        *QUICK,
        f"hydra.run.dir={tmp_path / 'a'}",
    )
    assert go(*words) == 2
    err = capsys.readouterr().err
    assert "trust=[my_wrappers]" in err and not (tmp_path / "a").exists()
    assert world("TimeAwareObservation", "my.own:W").imports() == (("id", HERE), ("wrappers", "my"))


def test_without_wrappers_the_simulator_plays() -> None:
    assert Gymnasium(id="CartPole-v1").simulated
    for made in (
        Gymnasium(id="CartPole-v1", wrappers=("TimeAwareObservation",)), Gymnasium(id="CartPole-v1", results=("x",)),
    ):  # fmt: skip
        assert not made.simulated
    assert Gymnasium(id="CartPole-v1", wrappers=("TimeAwareObservation",)).feature_names == {}


# ------------------------------------------------------------------ frame skip


def test_each_episode_draws_how_often_its_actions_are_repeated() -> None:
    """Rewards are discounted within a repeat, returns are not; an ending cuts a repeat short."""
    gamma, keys, repeats = 0.5, Episodes(1), set()
    made = world({f"{HERE}:Doubled": {"by": 3.0}}, frame_skip=(1, 3), skip_gamma=gamma, results=("at",))
    arena = made.arena(2, keys)
    envs: list[Any] = [Doubled(Goal(), 3.0) for _ in range(2)]
    episode, skips, raw = [0, 0], [0, 0], [0.0, 0.0]

    def begin(slot: int) -> None:
        seed = seed31(int(keys(slot, episode[slot])))
        envs[slot].reset(seed=seed)
        skips[slot], raw[slot] = int(generator("frame skip", seed).integers(1, 4)), 0.0
        repeats.add(skips[slot])

    for slot in range(2):
        begin(slot)
    arena.recv()
    for step in range(40):
        actions = [(slot + step * step) % 3 // 2 for slot in range(2)]
        arena.send(np.arange(2), np.array(actions)[:, None])
        decisions = arena.recv()
        results, cost = dict(decisions.results), 0
        for slot, action in enumerate(actions):
            earned = 0.0
            for i in range(skips[slot]):
                _, reward, terminated, truncated, info = envs[slot].step(action)
                earned, raw[slot], cost = earned + gamma**i * reward, raw[slot] + reward, cost + 1
                if terminated or truncated:
                    break
            assert decisions.reward[slot, 0] == pytest.approx(earned)
            assert (decisions.terminated[slot], decisions.truncated[slot]) == (terminated, truncated and not terminated)
            if terminated or truncated:
                assert results[slot]["return"] == pytest.approx(raw[slot]) and results[slot]["at"] == info["at"]
                episode[slot] += 1
                begin(slot)
        assert decisions.cost == cost
    assert repeats == {1, 2, 3}
    arena.close()


def test_a_world_with_drawn_repeats_conforms() -> None:
    check(world(frame_skip=(2, 4), skip_gamma=0.9))
    assert world(frame_skip=(2, 4), time_limit=9).longest_episode == 5
    for wrong in ((3, 2), (0, 2), 0):
        with pytest.raises(BadRequest, match=r"frame_skip: expected an int >= 1, or \[least, most\] of such, got"):
            world(frame_skip=wrong)
