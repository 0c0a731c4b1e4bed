"""Stacks of frames in replays, against replays that store them whole: rollouts, real games, learners, bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import fingerprint, go
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from mutating import check_notices, mutate
from test_storage import SPEC, STACKED, TWO_STACKS, Column, fragment

from evorl.mdp import stacks as worlds
from evorl.mdp.atari import Atari
from evorl.mdp.core import Discrete, Input, Spec, WorldError
from evorl.nets.policy import Net
from evorl.replay import stacks, storage
from evorl.replay.packed import Packed
from evorl.replay.samplers.core import BufferKeys
from evorl.replay.samplers.nearest import NearestRollouts
from evorl.replay.samplers.registry import RolloutSamplers
from evorl.replay.shared import ring_bytes
from evorl.replay.stacks import put_together, take_apart
from evorl.replay.storage import Replay, Shape
from evorl.rl.actor import Actor
from evorl.rl.batch import TransitionBatch
from evorl.rl.core import Hyper
from evorl.rl.dqn import DQN
from evorl.rl.vtrace import VTrace
from evorl.util.seed import Episodes

torch.set_num_threads(1)
CPU = torch.device("cpu")
LIVES = Atari(
    game="breakout", size=36, sticky=0.0, noop_max=30, fire_reset=True, episodic_life=True, time_limit=45
)  # an episode is a life, and a game is cut after 45 decisions
PICTURE = Spec((Input("observation", (4, 84, 84), "uint8", stacked=True),), Discrete(6))


def whole(spec: Spec) -> Spec:
    """The same observations, stored whole."""
    return replace(spec, inputs=tuple(replace(one, stacked=False) for one in spec.inputs))


# ------------------------------------------------------------------ rollouts


def rollouts(columns: list[Column], horizon: int) -> dict[str, Any]:
    """The next decisions of each column, side by side; a column goes on where its last rollout ended."""
    start = [[one.decisions == 0 for one in columns]]
    new, rows = fragment(columns, horizon)
    start += [[one["done"] for one in row] for row in rows]
    found = {f"input {i}": x.swapaxes(0, 1) for i, x in enumerate(new.inputs)}
    return {**found, "start": np.array(start).T, "reward": new.reward.swapaxes(0, 1)}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 9),
    slots=st.integers(1, 3),
    ends=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    spec=st.sampled_from([SPEC, STACKED, TWO_STACKS]),
)
def test_rollouts_come_back_whole(seed: int, horizon: int, slots: int, ends: float, spec: Spec) -> None:
    check_rollouts(seed, horizon, slots, ends, spec)


def check_rollouts(seed: int, horizon: int, slots: int, ends: float, spec: Spec) -> None:
    rng = np.random.default_rng(seed)
    columns = [Column(i, rng, ends, spec) for i in range(slots)]
    for _ in range(4):
        given = rollouts(columns, horizon)
        kept = take_apart(given, spec.inputs)
        for i, one in enumerate(spec.inputs):
            more = one.shape[0] - 1 if one.stacked else 0
            assert kept[f"input {i}"].shape[1] == horizon + 1 + more
        found = put_together(kept, spec.inputs)
        assert [*found] == [*given]
        for name, x in given.items():
            assert found[name].dtype == x.dtype and (found[name] == x).all()


def test_what_is_no_stack_is_refused() -> None:
    """Within an episode, at its start, and at its cut; nothing is stored then."""
    rng = np.random.default_rng(1)
    told = [fragment([Column(0, rng, ends, STACKED)], 6)[0] for ends in (0.0, 1.0)]
    going, ending = (new.inputs[1].copy() for new in told)
    going[3, 0, 0] += 1
    ending[3, 0, 0] += 1
    final = told[1].final_inputs[1] + np.arange(4, dtype=np.uint8)[:, None, None]
    assert (told[1].done & ~told[1].terminated).any()
    wrong = {
        "a state does not go on": told[0]._replace(inputs=[told[0].inputs[0], going]),
        "an episode begins with several frames": told[1]._replace(inputs=[told[1].inputs[0], ending]),
        "no stack of the newest 4 frames": told[1]._replace(final_inputs=[told[1].final_inputs[0], final]),
    }
    for line, new in wrong.items():
        replay = Replay(STACKED, Shape(40, 1))
        with pytest.raises(WorldError, match=f"the input 'picture' is .*{line}"):
            replay.append(new)
        assert replay.count == replay.frames == 0
        Replay(whole(STACKED), Shape(40, 1)).append(new)
    given = rollouts([Column(0, rng, 0.0, STACKED)], 6)
    given["input 1"] = given["input 1"].copy()
    given["input 1"][0, 2, 1] += 1
    with pytest.raises(WorldError, match="a state does not go on"):
        take_apart(given, STACKED.inputs)


# ------------------------------------------------------------------ compressed arrays


@settings(max_examples=40, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["uint8", "float32"]), shape=st.sampled_from([(), (3,), (4, 2)]))
def test_a_compressed_array_is_an_array(data: st.DataObject, dtype: str, shape: tuple[int, ...]) -> None:
    packed, plain = Packed((9, *shape), np.dtype(dtype)), np.zeros((9, *shape), dtype)
    places = arrays.arrays(np.int64, st.integers(1, 6), elements=st.integers(0, 8))
    for _ in range(3):
        at = data.draw(places)
        rows = data.draw(arrays.arrays(dtype, (len(at), *shape), elements=st.integers(0, 100)))
        packed[at] = plain[at] = rows
        asked = data.draw(places).reshape(-1, 1)
        found = packed.take(asked)
        assert found.dtype == plain.dtype and (found == plain.take(asked, 0)).all()
    assert found.shape == (*asked.shape, *shape)


# ------------------------------------------------------------------ games and learners


@contextmanager
def played(hyper: Hyper, world: Atari) -> Iterator[tuple[Spec, Actor]]:
    arena = world.arena(hyper.slots, Episodes(3))
    try:
        batch = hyper.storage(arena.spec, hyper.slots)
        yield arena.spec, Actor(arena, hyper.learner(arena.spec, 3, CPU), 3, 0, batch)
    finally:
        arena.close()


NET = {"hidden": (8,)}
QUICK: dict[str, Any] = {"slots": 2, "horizon": 10, "batch": 4, "lr": 1e-3}
RAINBOW = DQN(
    **QUICK,
    capacity=300,
    samples_per_step=0.25,
    warm_up=60,
    n_step=3,
    sampling="prioritized",
    epsilon=1.0,
    net=Net(**NET),
)
ELITE = VTrace(
    **QUICK, fill_in=8, net=Net(**NET, lstm=6),
    sampling={"queue": 0.5, "uniform": 0.25, "elite": 0.25},
    replay=RolloutSamplers(
        uniform=BufferKeys(capacity=9), elite=NearestRollouts(capacity=8, anneal=90, insertion="elite")
    ),
)  # fmt: skip


@pytest.mark.slow_cases(but=("dqn",))
@pytest.mark.parametrize("hyper", [RAINBOW, ELITE], ids=["dqn", "vtrace"])
def test_learners_take_the_steps_of_those_with_whole_stacks(hyper: Any) -> None:
    """On a game whose episodes are lives, and are cut; the ring wraps, and each goes on from a state in between."""
    with played(hyper, LIVES) as (spec, actor):
        packed = replace(hyper, compress=True)

        def made() -> list[Any]:
            return [packed.learner(spec, 3, CPU), hyper.learner(spec, 3, CPU), hyper.learner(whole(spec), 3, CPU)]

        learners, ends, cuts = made(), 0, 0
        for iteration in range(20):
            actor.collect(iteration)
            ends += int(actor.batch.done.sum())
            if isinstance(actor.batch, TransitionBatch):
                cuts += int((actor.batch.done & ~actor.batch.terminated).sum())
            if iteration == 9:
                resumed = made()
                for one, state in zip(resumed, [learners[i].state_dict() for i in (1, 0, 2)], strict=True):
                    one.load_state_dict(state)
                learners = resumed
            for one in learners:
                one.update(actor.batch, iteration, iteration)
        first, *others = learners
        assert first.gradient_steps > 15 and ends > 8 and (cuts > 3 or hyper is ELITE)
        for one in others:
            assert one.gradient_steps == first.gradient_steps and torch.equal(one.theta, first.theta)


@pytest.mark.slow
def test_a_run_with_compressed_frames_resumes_to_the_bit(tmp_path: Path) -> None:
    """From checkpoints, after the ring has wrapped."""
    asked = (
        *("mdp=atari_noframeskip", "mdp.game=breakout", "mdp.size=36", "mdp.time_limit=20", "rl=dqn", "rl.batch=4"),
        *(
            "rl.slots=2",
            "rl.rounds=1",
            "rl.samples_per_step=0.2",
            "rl.warm_up=60",
            "rl.capacity=90",
            "rl.compress=true",
        ),
        *("rl.n_step=2", "rl.net.hidden=[8]", "eval.every=0", "eval.episodes=1", "checkpoint.every=64"),
    )
    assert go(*asked, "budget.steps=256", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    assert go(*asked, "budget.steps=128", f"hydra.run.dir={tmp_path / 'halves'}") == 0
    assert go(f"resume={tmp_path / 'halves'}", "budget.steps=256") == 0
    stopped = [128]
    assert fingerprint(tmp_path / "halves", aside=stopped) == fingerprint(tmp_path / "whole", aside=stopped)


# ------------------------------------------------------------------ bytes


def test_a_million_transitions_of_atari_take_a_quarter() -> None:
    """As the page of DQN says."""
    stacked, stored = (ring_bytes(spec, Shape(1_000_000, 1)) for spec in (PICTURE, whole(PICTURE)))
    assert stacked < 8.1e9 and 0.25 < stacked / stored < 0.26


def test_bytes_of_a_rollout_of_atari_are_those_of_the_page() -> None:
    """24 pictures instead of 84, and what is decided; compressed, black pictures take almost nothing."""
    learners = [VTrace(compress=compress).learner(PICTURE, 0, CPU) for compress in (False, True)]
    plain, packed = (one.replay.parts["uniform"].rollouts.bytes_each for one in learners)
    assert plain == 24 * 84 * 84 + 1005
    assert packed < 1005 + 1000


def test_compress_needs_bytes_and_memory_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for words, line in (
        (("mdp=cartpole", "rl=dqn"), "only observations in bytes (uint8) are compressed, and this world has none"),
        (("mdp=cartpole", "rl=vtrace"), "only observations in bytes (uint8) are compressed, and this world has none"),
        (("mdp=pendulum", "rl=td3", "ec=cem_rl"), "workers read a shared replay in place, so it is not compressed"),
    ):
        assert go(*words, "rl.compress=true") == 2
        told = [one for one in capsys.readouterr().err.splitlines() if one.startswith("evorl: ")]
        assert told == [f"evorl: rl.compress: {line}"]


def test_without_lz4_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.replay.packed.find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"needs more than is installed: .* -e '\.\[lz4\]'"):
        DQN(compress=True).learner(PICTURE, 0, CPU)


# ------------------------------------------------------------------ the checks can fail

ROLLOUTS = (5, 6, 3, 0.3, STACKED)
RING = (3, 3, 2, 2, False, 0.1, 90, STACKED, True)  # arguments of `check_ring`
LATE = (9, 1, 3, 3, False, 0.1, 40, STACKED)
FULL = (93, 2, 3, 4, False, 0.6, 68, STACKED)
MUTATIONS: dict[str, tuple[str, tuple[Any, ...], Any, str, str]] = {
    "rollouts: frames of the episode before": (
        "rollouts", ROLLOUTS, stacks.frames_of_states, "np.where(start, state, 1 - k)", "0 * start + 1 - k"),
    "rollouts: the first state repeats its newest frame": (
        "rollouts", ROLLOUTS, stacks.frames_of_states, "np.where(start, state, 1 - k)", "np.where(start, state, 0)"),
    "rollouts: nothing before the first state": ("rollouts", ROLLOUTS, stacks.take_apart, "x[:, 0]", "x[:, 0, -1:]"),
    "ring: frames of the episode before": (
        "ring", RING, Replay._put_states, "np.where(new.done, NONE, place[:-1])", "place[:-1]"),
    "ring: a cut state without those before": (
        "ring", RING, Replay._put_states, "place[:-1][cut]", "np.full(np.count_nonzero(cut), NONE)"),
    "ring: a lost fragment's frames": (
        "ring", RING, Replay._put_states, "~gapless | (oldest", "(place[0] == NONE) | (oldest"),
    "ring: only the newest frame of a first state": (
        "ring", RING, Replay._put_states, "range(self.shape.depth)", "range(1)"),
    "ring: a stack of which frames were overwritten": (
        "ring", LATE, Replay._put_states, "self.stacks(place[0]).min(-1)", "place[0]"),
    "ring: older frames not counted": (
        "ring", FULL, Replay.oldest, "self.shape.depth * len(self.last)", "0"),
    "ring: stacks the wrong way round": ("ring", RING, storage.Storage.stacks, "stack[::-1]", "stack"),
    "ring: another's row": ("ring", RING, Packed.__setitem__, "at.tolist()", "(at // 2).tolist()"),
    "no check": ("refusal", (), worlds.check_stacks, "if not np.array_equal", "if False and not np.array_equal"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from test_storage import check_ring

    kind, args, function, old, new = MUTATIONS[name]
    if kind == "refusal":
        mutate(monkeypatch, function, old, new)
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            test_what_is_no_stack_is_refused()
        return
    check = {"rollouts": check_rollouts, "ring": check_ring}[kind]
    check(*args)
    mutate(monkeypatch, function, old, new)
    check_notices(check, *args)
