"""Legal actions that gymnasium environments report: `action_masks()` and ``info["action_mask"]``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium import spaces as gym_spaces
from gymnasium.vector import AutoresetMode, VectorEnv

import evorl.mdp
from evorl.cli.config import read_run_config
from evorl.mdp.core import Arena, Decisions, MultiDiscrete
from evorl.mdp.forms import Mismatch
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.gymnasium.masks import RowMasks
from evorl.mdp.gymnasium.probes import rows_are_independent
from evorl.mdp.gymnasium.vector_env import VectorEnvRows
from evorl.util.seed import Episodes

ID = "evorl-test/Masked-v0"
LENGTH = 5


class Masked(gymnasium.Env[Any, Any]):
    """Choice t mod 4 alone is legal at step t, as ``where`` tells; another one costs 1. Truncated after five steps."""

    observation_space = gym_spaces.Box(-1, 9, (1,), np.float32)

    def __init__(self, where: str = "info", nvec: bool = False, odd: str = "", end: str = "mask") -> None:
        self.action_space = gym_spaces.MultiDiscrete([4, 3]) if nvec else gym_spaces.Discrete(4, start=2)
        self.where, self.nvec, self.odd, self.end = where, nvec, odd, end
        if where == "method":
            self.action_masks = self.mask

    def mask(self) -> Any:
        mask = np.arange(4) == self.time % 4
        if self.nvec:
            other = np.arange(3) == self.time % 3
            return (mask.astype(np.int8), other) if self.where == "info" else np.concatenate([mask, other])
        odd = {
            "short": mask[:3],
            "float": mask.astype(float),
            "two": 2 * mask,
            "list": mask.tolist(),
            "batch": mask[None],
        }
        return odd.get(self.odd, mask.astype(np.int8))

    def info(self, over: bool = False) -> dict[str, Any]:
        if (over and self.end == "none") or (self.odd == "late" and self.time == 2):
            return {}
        mask = self.mask()
        if over and self.end == "empty":
            mask = np.zeros(4, np.int8)
        elif over and self.end == "an empty head":
            mask = (mask[0], np.zeros(3, np.int8))
        return {"action_mask": mask} if self.where == "info" else {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), self.info()

    def step(self, action: Any) -> Any:
        legal = (action == [self.time % 4, self.time % 3]).all() if self.nvec else action == 2 + self.time % 4
        self.time += 1
        over = self.time == LENGTH
        return np.float32([self.time]), float(legal) - 1, False, over, self.info(over)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.envs.registration.EnvSpec(ID, Masked)
    monkeypatch.setitem(gymnasium.registry, ID, spec)


def arena(slots: int = 2, action_masks: bool = True, **kwargs: Any) -> Arena:
    return Gymnasium(id=ID, kwargs=kwargs, action_masks=action_masks).arena(slots, Episodes(0))


def play(arena: Arena, action: list[int]) -> Decisions:
    arena.send(np.arange(arena.slots), np.tile(np.array(action), (arena.slots, 1)))
    return arena.recv()


def one_hot(n: int, choice: int) -> list[bool]:
    return [k == choice % n for k in range(n)]


@pytest.mark.parametrize("where", ["info", "method"])
@pytest.mark.parametrize("nvec", [False, True])
def test_masks_are_those_of_each_state(where: str, nvec: bool) -> None:
    played = arena(where=where, nvec=nvec)
    d = played.recv()
    assert played.spec.masked and d.legal is not None and d.final_legal is not None and d.legal.dtype == np.bool_

    def mask(time: int) -> list[bool]:
        return one_hot(4, time) + (one_hot(3, time) if nvec else [])

    for time in range(2 * LENGTH):
        now = time % LENGTH
        assert d.legal.tolist() == [mask(now)] * 2
        d = play(played, [now % 4, now % 3] if nvec else [now % 4])
        assert d.legal is not None and d.final_legal is not None and d.reward.tolist() == [[0], [0]]
        if d.truncated.all():
            assert now == LENGTH - 1 and d.final_legal.tolist() == [mask(LENGTH)] * 2
    assert d.truncated.all()
    played.close()


@pytest.mark.parametrize("end", ["none", "empty"])
def test_all_actions_are_legal_in_a_last_state_without_a_mask(end: str) -> None:
    played = arena(end=end)
    for time in range(LENGTH):
        d = play(played, [time % 4])
    assert d.truncated.all() and d.final_legal is not None and d.legal is not None
    assert d.final_legal.all() and d.legal.tolist() == [one_hot(4, 0)] * 2
    played.close()


def test_all_choices_of_a_head_are_legal_in_a_last_state_without_one() -> None:
    played = arena(nvec=True, end="an empty head")
    for time in range(LENGTH):
        d = play(played, [time % 4, time % 3])
    assert d.final_legal is not None and d.final_legal.tolist() == [one_hot(4, LENGTH) + [True] * 3] * 2
    played.close()
    world = Gymnasium(id=ID, kwargs={"nvec": True, "end": "an empty head"})
    evorl.mdp.check(world, varied=False, decisions=20)


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ("short", r"the legal mask is declared bool \[4\], and the world gave bool \[3\]"),
        ("float", r"the legal mask is declared bool \[4\], and the world gave float64 \[4\]"),
        ("two", r"the legal mask is declared bool \[4\], and the world gave int64 \[4\] with numbers from 0 to 2"),
        ("batch", r"the legal mask is declared bool \[4\], and the world gave bool \[1, 4\]"),
        ("late", r"the legal mask is declared bool \[4\], and the world gave None"),
    ],
)
def test_a_mask_of_another_form_is_refused(odd: str, words: str) -> None:
    with pytest.raises(Mismatch, match=rf"^{ID}, slot 0, seed \d+: {words}"):
        played = arena(odd=odd)
        for time in range(3):
            play(played, [time % 4])


@pytest.mark.parametrize("where", ["info", "method"])
@pytest.mark.parametrize("nvec", [False, True])
def test_an_action_is_repeated_as_long_as_it_is_legal(where: str, nvec: bool) -> None:
    world = Gymnasium(id=ID, kwargs={"where": where, "nvec": nvec}, frame_skip=3)
    played = world.arena(2, Episodes(0))
    played.recv()
    for time in range(LENGTH):  # each choice is legal for one step
        d = play(played, [time % 4, time % 3] if nvec else [time % 4])
        assert d.reward.tolist() == [[0], [0]] and d.cost == 2
    assert d.truncated.all()
    state, legal = played.state_dict(), d.legal
    again = world.arena(2, Episodes(0))
    again.load_state_dict(state)
    assert legal is not None and np.array_equal(again.recv().legal, legal)
    played.close()
    again.close()


@pytest.mark.parametrize(("where", "masks", "decisions"), [("info", True, 4), ("method", True, 4), ("info", False, 2)])
def test_an_episode_of_cut_repeats_is_as_long_as_its_limit(where: str, masks: bool, decisions: int) -> None:
    world = Gymnasium(id=ID, kwargs={"where": where}, action_masks=masks, frame_skip=3, time_limit=4)
    assert world.longest_episode == decisions
    played = world.arena(1, Episodes(0))
    played.recv()
    ends = [bool(play(played, [time % 4]).truncated[0]) for time in range(decisions)]
    assert ends == [False] * (decisions - 1) + [True]
    played.close()


@pytest.mark.parametrize(("odd", "decisions"), [({"odd": "short"}, 4), ({"where": "nowhere"}, 2)])
def test_an_environment_that_fails_may_have_masks(odd: dict[str, Any], decisions: int) -> None:
    assert Gymnasium(id=ID, kwargs=odd, frame_skip=3, time_limit=4).longest_episode == decisions


def test_a_list_is_a_mask() -> None:
    assert np.array_equal(arena(odd="list").recv().legal, [one_hot(4, 0)] * 2)


def test_masks_can_be_switched_off_and_need_choices() -> None:
    played = arena(action_masks=False)
    assert not played.spec.masked and played.recv().legal is None and play(played, [1]).final_legal is None
    plain = Gymnasium(id="CartPole-v1", frame_skip=2).arena(1, Episodes(0))
    assert not plain.spec.masked and plain.recv().legal is None


@pytest.mark.parametrize("where", ["info", "method"])
def test_masked_environments_conform(where: str) -> None:
    """Among the rules: a saved state continues with the same masks."""
    world = Gymnasium(id=ID, kwargs={"where": where, "nvec": True})
    evorl.mdp.check(world, varied=False, decisions=20)


class MaskedRows(VectorEnv[Any, Any, Any]):
    """Rows of `Masked`, each with a clock of its own."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 (as gymnasium declares it)

    def __init__(self, num_envs: int, mode: AutoresetMode = AutoresetMode.DISABLED, odd: bool = False) -> None:
        self.num_envs, self.odd = num_envs, odd
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = gym_spaces.Box(-1, 9, (1,), np.float32)
        self.single_action_space = gym_spaces.Discrete(4)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.time = np.zeros(num_envs, np.int64)

    def outcome(self, rows: Any, *told: Any, **infos: Any) -> Any:
        masks = self.time[:, None] % 4 == np.arange(4)
        infos |= {"action_mask": masks[:, : 4 - self.odd].astype(np.int8) * rows[:, None], "_action_mask": rows}
        return self.time[:, None].astype(np.float32), *told, infos

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        rows = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        self.time[rows] = 0
        return self.outcome(rows)

    def step(self, actions: Any) -> Any:
        mode, every = self.metadata["autoreset_mode"], np.ones(self.num_envs, bool)
        begun = (self.time == LENGTH) & (mode is AutoresetMode.NEXT_STEP)
        reward = (actions == self.time % 4) - 1.0
        self.time = np.where(begun, 0, self.time + 1)
        over, infos = self.time == LENGTH, {}
        if mode is AutoresetMode.SAME_STEP and over.any():
            final, _ = self.outcome(every)
            masks = self.time[:, None] % 4 == np.arange(4)
            infos = {"final_obs": final, "final_info": {"action_mask": masks, "_action_mask": over}}
            self.time[over] = 0
        return self.outcome(every, reward, np.zeros(self.num_envs, bool), over, **infos)


def world_of_rows(kind: type[MaskedRows], mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> Gymnasium:
    """The world of these rows, which are reset in this mode."""
    name = f"evorl-test/{kind.__name__}-v0"
    monkeypatch.setattr(MaskedRows.__init__, "__defaults__", (mode, False))
    monkeypatch.setitem(gymnasium.registry, name, gymnasium.envs.registration.EnvSpec(name, vector_entry_point=kind))
    return Gymnasium(id=name)


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_rows_of_a_vector_environment_have_masks(mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of_rows(MaskedRows, mode, monkeypatch)
    played = world.arena(2, Episodes(0))
    d = played.recv()
    assert played.spec.masked and d.legal is not None and d.final_legal is not None
    for number in range(2 * LENGTH):
        time = number % LENGTH
        assert d.legal.tolist() == [one_hot(4, time)] * 2
        d = play(played, [time % 4])
        assert d.reward.tolist() == [[0], [0]] and d.truncated.tolist() == [time == LENGTH - 1] * 2
        if d.truncated.all():
            assert d.final_legal.tolist() == [one_hot(4, LENGTH)] * 2
            if mode is AutoresetMode.NEXT_STEP:
                assert d.inputs[0].tolist() == [[0], [0]]
    played.close()
    evorl.mdp.check(world, varied=False, decisions=12)
    off = Gymnasium(id="evorl-test/MaskedRows-v0", action_masks=False).arena(2, Episodes(0))
    assert not off.spec.masked and off.recv().legal is None


class StrictRows(MaskedRows):
    """Refuses illegal actions. Episodes with seeds of their own begin at other times, so they end one by one."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        rows = super().reset(seed=seed, options=options)[-1]["_action_mask"]
        if isinstance(seed, list):
            self.time[rows] = [each % 3 for each, row in zip(seed, rows, strict=True) if row]
        return self.outcome(rows)

    def step(self, actions: Any) -> Any:
        if ((actions != self.time % 4) & (self.time < LENGTH)).any():
            raise ValueError(f"{actions} are not legal at {self.time}")
        return super().step(actions)


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_rows_that_refuse_illegal_actions_conform(mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is found out whether rows are independent, and where one goes on while the other has not begun."""
    world = world_of_rows(StrictRows, mode, monkeypatch)
    world.ready()
    assert rows_are_independent(world.make_vec, True) == (mode is AutoresetMode.DISABLED)
    evorl.mdp.check(world, varied=False, decisions=40)


def test_heads_without_a_choice_are_filled_in_last_states_of_rows_alone() -> None:
    told = np.array([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]], np.int8)
    infos = {"action_mask": told, "_action_mask": np.array([True, False, True, True])}
    masks, legal = RowMasks(MultiDiscrete((2, 3)), MaskedRows(4), 4), np.zeros((4, 5), np.bool_)
    masks.update(legal, infos, np.ones(4, bool), np.array([True, True, True, False]))
    assert legal.astype(int).tolist() == [[1, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]]
    assert np.array_equal(masks.final({"final_info": infos}, np.arange(3)), legal[:3])
    assert masks.final({}, np.array([2])).all()


def test_masks_of_rows_of_another_form_are_refused() -> None:
    rows = VectorEnvRows(MaskedRows(2, odd=True), 2, None)
    with pytest.raises(Mismatch, match=r"MaskedRows, .*the legal mask is declared bool \[2, 4\], .* int8 \[2, 3\]"):
        rows.reset(0, np.ones(2, bool))


def test_runs_of_older_versions_use_no_masks(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    mdp = {"_target_": "evorl.mdp.gymnasium.Gymnasium", "id": "Taxi-v4", "frame_skip": 1, "reward_scale": 1.0}
    for given, expected in (({}, False), ({"action_masks": True}, True)):
        (tmp_path / ".hydra" / "config.yaml").write_text(yaml.safe_dump({"mdp": mdp | given}))
        assert read_run_config(tmp_path, "run")["mdp"]["action_masks"] is expected
    (tmp_path / ".hydra" / "config.yaml").write_text(yaml.safe_dump({"mdp": {"id": "zdt1"}}))
    assert read_run_config(tmp_path, "run")["mdp"] == {"id": "zdt1"}
