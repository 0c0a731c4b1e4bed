"""Simulators with a vector entry point: a slot's course in each autoreset mode, exact resume, refusals of one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from harness import QUICK, fingerprint, go, newest

import evorl.mdp
from evorl import evaluate
from evorl.mdp.core import Arena, Array, Decisions, EpisodeFailed, WorldError
from evorl.mdp.gymnasium import Gymnasium, probes, snapshot
from evorl.mdp.gymnasium.shared_generator import SharedGeneratorArena
from evorl.mdp.lockstep import Lockstep
from evorl.nets.policy import Net
from evorl.rl.actor import Actor
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.evaluation import play_episodes as evaluated
from evorl.rl.ppo import PPO
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

torch.set_num_threads(1)
MODES = [AutoresetMode.DISABLED, AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]
modes = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


class Walk(VectorEnv[Any, Any, Any]):
    """Rows walk left or right and are blown about by one generator for all rows. It ends beyond 1 (terminated) or
    after 9 steps (truncated); what is seen is where a row is, its time, and how far it went in all its episodes."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
    modes: tuple[AutoresetMode, ...] = tuple(MODES)
    wind = 0.1
    limit = 9

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        self.num_envs = num_envs
        self.metadata = {**type(self).metadata, "autoreset_mode": autoreset_mode}
        self.single_observation_space = gym_spaces.Dict(
            place=gym_spaces.Box(-9, 9, (2,), np.float64), time=gym_spaces.Discrete(30)
        )
        self.single_action_space = gym_spaces.Discrete(2, start=3)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.place = np.zeros((num_envs, 2))
        self.x = self.place[:, 0]  # what shares an array still has to after it was restored
        self.time = np.zeros(num_envs, np.int64)
        self.over = np.zeros(num_envs, bool)
        self.calm = {"since": [np.float64(0.5), (1, None)]}

    def gusts(self, mask: Array) -> Array:
        return np.asarray(self.np_random.normal(size=int(mask.sum()))) * self.wind

    def seeded(self, seed: Any, mask: Array) -> None:
        if seed is not None:
            self._np_random, self._np_random_seed = gymnasium.utils.seeding.np_random(seed)

    def begin(self, mask: Array) -> None:
        self.x[mask] = self.gusts(mask)
        self.time[mask], self.over[mask] = 0, False

    def seen(self) -> dict[str, Array]:
        return {"place": self.place.copy(), "time": self.time.copy()}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        mask = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        self.seeded(seed, mask)
        self.begin(mask)
        return self.seen(), {}

    def step(self, actions: Any) -> Any:
        assert self.action_space.contains(actions)
        mode = self.metadata["autoreset_mode"]
        assert mode is not AutoresetMode.DISABLED or not self.over.any()
        old = self.over.copy()
        live = ~old
        moved = np.where(actions[live] == 4, 0.3, -0.1) + self.gusts(live)
        self.x[live] += moved
        self.place[live, 1] += np.abs(moved)
        self.time[live] += 1
        terminated, truncated = live & (self.x > 1), live & (self.time >= self.limit)
        reward = np.where(live, self.x, 0.0)
        self.begin(old)
        self.over = terminated | truncated
        infos: dict[str, Any] = {}
        if mode is AutoresetMode.SAME_STEP and self.over.any():
            final = self.seen()
            infos["final_obs"] = np.array(
                [{k: v[i] for k, v in final.items()} if over else None for i, over in enumerate(self.over)], object
            )
            self.begin(self.over.copy())
        return self.seen(), reward, terminated, truncated, infos


class Calm(Walk):
    """Without chance: so a slot's course depends on its actions alone, in whatever company."""

    wind = 0.0


class Alone(gymnasium.Env[Any, Any]):
    """One row of a walk without chance, as an ordinary environment."""

    def __init__(self) -> None:
        self.rows = Calm(1, AutoresetMode.DISABLED)
        self.observation_space = self.rows.single_observation_space
        self.action_space = self.rows.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.first(self.rows.reset(seed=seed)[0]), {}

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, _ = self.rows.step(np.array([action]))
        return self.first(seen), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def first(self, seen: dict[str, Array]) -> dict[str, Any]:
        return {"place": seen["place"][0], "time": seen["time"][0]}


class Own(Walk):
    """A generator for each row, seeded by a seed for each row."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        super().__init__(num_envs, autoreset_mode)
        self.generators: list[Any] = [None] * num_envs
        self.secret = object()  # what is played again need not be saved

    def seeded(self, seed: Any, mask: Array) -> None:
        for row in np.flatnonzero(mask):
            self.generators[row] = np.random.default_rng(seed[row])

    def gusts(self, mask: Array) -> Array:
        return np.array([self.generators[row].normal() for row in np.flatnonzero(mask)]) * self.wind

    def begin(self, mask: Array) -> None:
        super().begin(mask)
        self.place[mask, 1] = 0.0  # or it would remember earlier episodes


class Listed(Walk):
    """Takes a list of seeds as the entropy of its one generator."""

    def seeded(self, seed: Any, mask: Array) -> None:
        if seed is not None:
            self._np_random = np.random.default_rng(seed)


class Opaque(Walk):
    """Keeps something that is no plain data."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.physics = {"engine": iter([1, 2])}


class Hidden(Walk):
    """Keeps its generator where no attribute shows it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        generator = np.random.default_rng(3)
        self.gusts = lambda mask: generator.normal(size=int(mask.sum()))


class Deaf(Walk):
    """Does not heed the mask."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)


class Silent(Walk):
    """Does not say when it resets."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.metadata = {}


class Rigid(Walk):
    """Resets itself, whatever is asked."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)


class Broken(Walk):
    def step(self, actions: Any) -> Any:
        raise RuntimeError("the engine fell off")


class Gone(Walk):
    def reset(self, **given: Any) -> Any:
        raise ConnectionError("no server")


class Painted(Own):
    """Draws its rows: a picture says where each one is and how much time has passed."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP, **given: Any) -> None:
        super().__init__(num_envs, autoreset_mode)
        self.metadata["render_modes"] = ["rgb_array"]

    def render(self) -> Any:
        return tuple(painted(x, time) for x, time in zip(self.x, self.time, strict=True))


def painted(x: float, time: int) -> Array:
    return np.full((8, 8, 3), np.array([100 + 50 * x, time, 0]).astype(np.uint8))


class Twin(gymnasium.Env[Any, Any]):
    """A row of `Own` as an ordinary environment that draws."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    kind: type[Own] = Own

    def __init__(self, render_mode: str | None = None) -> None:
        self.row = self.kind(1, AutoresetMode.DISABLED)
        self.render_mode = render_mode
        self.observation_space, self.action_space = self.row.single_observation_space, self.row.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.first(self.row.reset(seed=[seed])[0]), {}

    def step(self, action: Any) -> Any:
        seen, (reward,), (terminated,), (truncated,), _ = self.row.step(np.array([action]))
        return self.first(seen), float(reward), bool(terminated), bool(truncated), {}

    def first(self, seen: dict[str, Array]) -> dict[str, Any]:
        return {"place": seen["place"][0], "time": seen["time"][0]}

    def render(self) -> Any:
        return painted(self.row.x[0], self.row.time[0])


class Windy(Own):
    wind = 0.11


class Cousin(Twin):
    """Plays by other rules."""

    kind = Windy


class Larger(Twin):
    """Shows something else."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = gym_spaces.Dict(
            {**self.observation_space, "place": gym_spaces.Box(-9, 9, (3,), np.float64)}
        )


class Blank(Twin):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}


KINDS = (Walk, Calm, Own, Listed, Opaque, Hidden, Deaf, Silent, Rigid, Broken, Gone, Painted)
PAIRS = (Twin, Cousin, Larger, Blank)
"""Ordinary environments of ids whose vector environment is `Own`."""


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    for kind in KINDS:
        gymnasium.register(id_of(kind), vector_entry_point=kind)
    gymnasium.register(id_of(Alone), entry_point=Alone)
    for pair in PAIRS:
        gymnasium.register(id_of(pair), entry_point=pair, vector_entry_point=Own)
    yield
    for kind in (*KINDS, Alone, *PAIRS):
        del gymnasium.registry[id_of(kind)]


def id_of(kind: type) -> str:
    return f"evorl-test/{kind.__name__}-v0"


def world_of(kind: type, mode: AutoresetMode | None = None, **given: Any) -> Gymnasium:
    world = Gymnasium(id=id_of(kind), **given)
    if mode is not None:
        world.kwargs["autoreset_mode"] = mode
    return world


def send(arena: Arena, actions: Array) -> Decisions:
    slots = arena.recv().slots
    arena.send(slots, actions[slots])
    return arena.recv()


Row = tuple[Any, ...]


def courses(arena: Arena, decisions: int, seed: int = 0) -> list[list[Row]]:
    """All that each slot was told at each of its decisions, whose actions are keyed by slot and decision."""
    told: list[list[Row]] = [[] for _ in range(arena.slots)]
    draws = np.random.default_rng(seed).integers(2, size=(arena.slots, 10 * decisions, 1))
    cost = 0
    while min(map(len, told)) < decisions:
        now = arena.recv()
        cost += now.cost
        results = dict(now.results)
        for slot in now.slots.tolist():
            over = now.terminated[slot], now.truncated[slot]
            final = [x[slot].tolist() for x in now.final] if over[1] else None
            seen = [x[slot].tolist() for x in now.inputs]
            told[slot].append((seen, now.reward[slot].tolist(), *map(bool, over), final, results.pop(slot, None)))
        assert not results
        actions = np.array([draws[slot, len(told[slot])] for slot in now.slots])
        arena.send(now.slots, actions)
    return [rows[:decisions] for rows in told]


# ------------------------------------------------------------------ ends


@modes
def test_a_slot_equals_an_environment_of_its_own(mode: AutoresetMode) -> None:
    """Rewards, ends, last states, results and first states, of every decision; both kinds of end occur."""
    alone, together = world_of(Alone), world_of(Calm, mode)
    want = courses(alone.arena(5, Episodes(0)), 60)
    got = courses(together.arena(5, Episodes(0)), 60)
    assert got == want
    ends = [row[2:4] for rows in want for row in rows]
    assert (True, False) in ends and (False, True) in ends


@pytest.mark.slow_cases(but=("4-NEXT_STEP", "0-SAME_STEP"))
@modes
@pytest.mark.parametrize("lstm", [0, 4])
def test_a_truncated_episode_is_bootstrapped_from_the_state_it_was_cut_at(mode: AutoresetMode, lstm: int) -> None:
    """The first batch has the bits of one environment a slot, whatever the rows lag."""
    parts = []
    for world in (world_of(Alone), world_of(Calm, mode)):
        arena = world.arena(5, Episodes(0))
        learner = PPO(net=Net(lstm=lstm, hidden=(8,))).learner(arena.spec, 0, torch.device("cpu"))
        actor = Actor(arena, learner, 3, 0, PolicyGradientBatch.empty(arena.spec, 40, 5, lstm))
        cost, _ = actor.collect(0)
        assert cost >= 200
        parts.append(actor.batch)
        for iteration in (1, 2):  # and it goes on
            actor.collect(iteration)
            assert actor.batch.final_value.any()
        actor = Actor(world.arena(5, Episodes(0)), learner, 3, 0, PolicyGradientBatch.empty(arena.spec, 40, 5, lstm))
        actor.collect(0)
        parts[-1] = actor.batch
    one, other = parts
    assert one.final_value.count_nonzero() > 5
    for name in ("start", "action", "log_prob", "value", "final_value", "reward", "done"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert all(torch.equal(a, b) for a, b in zip(one.inputs, other.inputs, strict=True))


@pytest.mark.slow_cases(but=("SAME_STEP",))
@modes
def test_walks_conform(mode: AutoresetMode) -> None:
    world = world_of(Walk, mode)
    world.ready()
    assert isinstance(world.arena(3, Episodes(0)), SharedGeneratorArena)
    evorl.mdp.check(world)


def test_the_cartpole_of_gymnasium_conforms() -> None:
    world = Gymnasium(id="CartPole-v1", vector=True)
    world.ready()
    evorl.mdp.check(world)


def test_the_rows_of_cartpole_follow_the_equations_of_cartpole() -> None:
    """Each step from where a row stands, as our simulator makes it (theirs rounds the last bit another way)."""
    vector, ours = (
        Gymnasium(id="CartPole-v1", vector=True, time_limit=30).arena(6, Episodes(0)),
        Gymnasium(id="CartPole-v1"),
    )
    state = ours.arena(6, Episodes(0)).state_dict()
    rng, ends = np.random.default_rng(0), []
    for _ in range(120):
        before, waiting = vector.recv().inputs[0].astype(float), vector.recv().slots
        single = ours.arena(6, Episodes(0))
        state["engine"] = {"state": before.T, "inputs": before.astype(np.float32), "lengths": np.zeros(6, np.int64)}
        single.load_state_dict(state)
        actions = rng.integers(2, size=(6, 1))
        single.send(np.arange(6), actions)
        want, now = single.recv(), send(vector, actions)
        going = np.intersect1d(waiting, now.slots)
        live = going[~(now.terminated | now.truncated)[going]]
        np.testing.assert_allclose(now.inputs[0][live], want.inputs[0][live], atol=1e-5)
        ends += [(result["length"], result["return"]) for _, result in now.results]
        assert (now.reward[now.slots] == 1).all()
    assert len(ends) > 10 and all(length == ret <= 30 for length, ret in ends)


# ------------------------------------------------------------------ a seed for each row


def test_row_seeds_make_episodes_independent() -> None:
    world = world_of(Own)
    world.ready()
    evorl.mdp.check(world)
    few, many = (world.arena(slots, Episodes(3)) for slots in (2, 5))
    assert isinstance(few, Lockstep)
    assert courses(few, 50) == courses(many, 50)[:2]


@pytest.mark.parametrize("before", [0, 1, 9, 40])
def test_rows_with_seeds_are_replayed(before: int) -> None:
    going, fresh = (world_of(Own).arena(4, Episodes(5)) for _ in range(2))
    rng = np.random.default_rng(0)
    for arena, steps in ((going, before), (fresh, 5)):
        for _ in range(steps):
            send(arena, rng.integers(2, size=(4, 1)))
    state = going.state_dict()
    fresh.load_state_dict(state)
    assert all((a == b).all() for a, b in zip(fresh.recv().inputs, going.recv().inputs, strict=True))
    want = courses(going, 30)
    got = courses(fresh, 30)
    assert [rows[1:] for rows in got] == [rows[1:] for rows in want]


def test_a_list_of_seeds_for_one_generator_is_no_seed_for_each() -> None:
    assert not probes.rows_are_independent(world_of(Listed).make_vec, True)
    assert probes.rows_are_independent(world_of(Own).make_vec, True)
    assert isinstance(world_of(Listed).arena(3, Episodes(0)), SharedGeneratorArena)


# ------------------------------------------------------------------ pictures of what is seeded row by row


@pytest.mark.parametrize("kind", [Painted, Twin])
def test_a_row_is_drawn_if_its_episode_can_be_replayed(kind: type) -> None:
    """By the vector environment itself, or by the ordinary one; at its ends, too."""
    arena = world_of(kind, vector=True).arena(3, Episodes(0))
    assert isinstance(arena, Lockstep)
    ends: list[Any] = []
    arena.on_episode_end = lambda: ends.append((arena.render(1), place(arena)))

    def place(arena: Arena) -> Any:
        names = [one.name for one in arena.spec.inputs]
        seen = {name: x[1] for name, x in zip(names, arena.recv().inputs, strict=True)}
        return painted(seen["place"][0], seen["time"].argmax())

    rng = np.random.default_rng(0)
    for _ in range(40):
        assert (arena.render(1) == place(arena)).all()
        send(arena, rng.integers(2, size=(3, 1)))
    assert len(ends) > 5 and all((picture == there).all() for picture, there in ends)
    arena.close()


@pytest.mark.parametrize("kind", [Own, Blank])
def test_where_neither_environment_draws_there_is_no_picture(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    arena = world_of(kind, vector=True).arena(2, Episodes(0))
    made, make = [], Gymnasium.make
    monkeypatch.setattr(Gymnasium, "make", lambda *given, **named: made.append(given) or make(*given, **named))
    assert arena.render(0) is None and arena.render(1) is None
    assert len(made) <= 1  # to see whether it draws


@pytest.mark.parametrize("kind", [Cousin, Larger])
def test_an_ordinary_environment_that_plays_something_else_draws_nothing(kind: type) -> None:
    arena = world_of(kind, vector=True).arena(2, Episodes(0))
    with pytest.raises(BadRequest, match=rf"no film of {id_of(kind)}: .* plays another episode \(0 decisions after"):
        arena.render(0)
    arena.close()


@pytest.mark.slow_cases(but=("Own-0",))
@pytest.mark.parametrize(("kind", "films"), [(Twin, 1), (Painted, 1), (Cousin, 0), (Own, 0)])
def test_the_film_of_a_run(kind: type, films: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    words = [*QUICK, "mdp=gymnasium", f"mdp.id={id_of(kind)}", "mdp.vector=true", "budget.steps=128"]
    assert go(*words, f"hydra.run.dir={run}") == 0
    capsys.readouterr()
    assert evaluate.main([f"run={run}", "video=true", "episodes=1"]) == (0 if films else 2)
    said = capsys.readouterr()
    assert len([*run.glob("videos/*")]) == films
    assert said.err == "" if films else said.err.startswith("evorl: ") and said.err.count("\n") == 1
    assert films or not (run / "videos").exists()


# ------------------------------------------------------------------ the whole state


@modes
def test_a_restored_walk_goes_on_exactly(mode: AutoresetMode) -> None:
    world = world_of(Walk, mode)
    going, fresh = (world.arena(4, Episodes(5)) for _ in range(2))
    rng = np.random.default_rng(0)
    some_wait = 0
    for _ in range(40):
        now = send(going, rng.integers(2, size=(4, 1)))
        fresh.load_state_dict(going.state_dict())
        again = fresh.recv()
        assert again.slots.tolist() == now.slots.tolist() and again.cost == 0 and not again.results
        some_wait += len(again.slots) < 4
        assert not again.reward[again.slots].any() and not again.terminated[again.slots].any()
        actions = rng.integers(2, size=(4, 1))
        a, b = send(going, actions), send(fresh, actions)
        assert a.slots.tolist() == b.slots.tolist() and a.results == b.results and a.cost == b.cost
        for name in ("reward", "terminated", "truncated"):
            assert getattr(a, name)[a.slots].tolist() == getattr(b, name)[a.slots].tolist()
        for x, y in zip((*a.inputs, *a.final), (*b.inputs, *b.final), strict=True):
            assert x.tobytes() == y.tobytes()
    assert (some_wait > 3) == (mode is AutoresetMode.NEXT_STEP)


def test_a_snapshot_is_plain_and_keeps_what_is_shared() -> None:
    one, other = Walk(3), Walk(3)
    one.reset(seed=1)
    other.reset(seed=2)
    one.step(np.array([3, 4, 3]))
    one.calm["since"].append(7)
    state = snapshot.save(one)
    assert isinstance(state["tree"], str) and all(x.dtype.kind in "biuf" for x in state["arrays"].values())
    one.step(np.array([3, 4, 3]))  # a snapshot is a copy
    snapshot.restore(other, state)
    assert other.x.base is other.place and other.calm == {"since": [0.5, (1, None), 7]}
    assert type(other.calm["since"][0]) is np.float64
    assert snapshot.save(other)["tree"] == state["tree"]
    other.step(np.array([3, 4, 3]))
    assert (other.place == one.place).all()


@modes
def test_evaluations_truncate_an_episode_without_end(mode: AutoresetMode, caplog: pytest.LogCaptureFixture) -> None:
    """The environment's own episodes have up to nine steps. One that resets itself goes on after a cut."""
    world = world_of(Calm, mode)
    learner = PPO(net=Net(hidden=(8,))).learner(world.arena(1, Episodes(0)).spec, 0, torch.device("cpu"))
    whole = evaluated(learner, world, 0, 64, deterministic=True)
    cut = evaluated(learner, world, 0, 64, 3, deterministic=True)
    assert min(episode.length for episode in whole) > 3 == max(episode.length for episode in cut)
    assert "64 of 64 evaluation episodes had no end and were truncated after 3 steps" in caplog.text
    assert max(e.length for e in evaluated(learner, world, 0, 300, 3, deterministic=False)) == 3


def test_an_error_of_a_vector_environment_ends_the_world() -> None:
    """In a step it may be for the actions: also in the first."""
    arena = world_of(Broken).arena(3, Episodes(0))
    with pytest.raises(EpisodeFailed, match=r"(?s)Broken-v0, all 3 slots.*RuntimeError: the engine fell off"):
        courses(arena, 9)
    with pytest.raises(WorldError, match=r"Gone-v0(?s:.*)no server") as caught:
        world_of(Gone).arena(3, Episodes(0))
    assert caught.type is WorldError


# ------------------------------------------------------------------ runs

CARTPOLE = ("mdp=cartpole", "mdp.vector=true", "mdp.time_limit=25")
WALK = ("mdp=gymnasium", f"mdp.id={id_of(Walk)}")
RIGID = ("mdp=gymnasium", f"mdp.id={id_of(Rigid)}")


@pytest.mark.slow
@pytest.mark.parametrize("words", [CARTPOLE, WALK, RIGID], ids=["cartpole", "disabled", "next step"])
@pytest.mark.parametrize("more", [(), ("rl.net.lstm=8", "rl.members=2", "rl.slots=4")], ids=["", "lstm"])
def test_n_and_n_more_is_2n(words: tuple[str, ...], more: tuple[str, ...], tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    unique = list({word.partition("=")[0]: word for word in (*QUICK, *words, *more)}.values())
    assert go(*unique, "budget.steps=1400", f"hydra.run.dir={whole}") == 0
    assert go(*unique, "budget.steps=700", f"hydra.run.dir={halves}") == 0
    stopped = newest(halves)["run"]["steps"]
    assert 700 <= stopped < 1000
    assert go(f"resume={halves}", "budget.steps=1400") == 0
    assert fingerprint(halves, aside=[stopped]) == fingerprint(whole, aside=[stopped])


@modes
def test_evaluation_depends_on_weights_and_seed_only(mode: AutoresetMode) -> None:
    world = world_of(Walk, mode)
    learner = PPO(net=Net(hidden=(8,))).learner(world.arena(1, Episodes(0)).spec, 0, torch.device("cpu"))
    played = [evaluated(learner, world, seed, 70, deterministic=False) for seed in (0, 0, 1)]
    assert played[0] == played[1] != played[2]
    assert len(played[0]) == 70


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([id_of(Opaque)], f"mdp.id: {id_of(Opaque)} has one generator for all slots and cannot be saved: "
            "Opaque.physics.engine is a builtins.list_iterator"),
        ([id_of(Hidden)], f"mdp.id: {id_of(Hidden)} has one generator for all slots and cannot be saved: "
            "its attributes are not all of its state"),
        ([id_of(Deaf)], "does not heed reset_mask"),
        ([id_of(Silent)], "does not declare when it resets itself"),
        ([id_of(Walk), "mdp.frame_skip=2"], f"mdp.frame_skip: {id_of(Walk)} steps all its rows together"),
        ([id_of(Rigid), "mdp.time_limit=5"], f"mdp.time_limit: {id_of(Rigid)} resets itself"),
        ([id_of(Walk), "mdp.vector=false"], f"mdp.vector: {id_of(Walk)} has only a vector environment"),
        (["LunarLander-v3", "mdp.vector=true"], "mdp.vector: LunarLander-v3 has no vector environment"),
        ([id_of(Walk), "+mdp.kwargs.gravity=1"], "gravity"),
    ],
)  # fmt: skip
def test_unsupported_environments_are_refused_in_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go("mdp=gymnasium", f"mdp.id={words[0]}", *words[1:], f"hydra.run.dir={tmp_path / 'run'}") == 2
    told = capsys.readouterr().err.strip()
    assert says in told and "\n" not in told
    assert not (tmp_path / "run").exists()


def test_time_limit_truncates_environments_that_evorl_resets() -> None:
    arena = world_of(Walk, time_limit=4).arena(3, Episodes(0))
    lengths = [row[5]["length"] for rows in courses(arena, 40) for row in rows if row[5]]
    assert max(lengths) == 4
