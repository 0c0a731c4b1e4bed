"""`check` accepts every world of evorl, and names the rule that a broken world breaks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tiny import Walk, WalkBattle, Walker

import evorl.mdp
from evorl.mdp.battle_arena import BattleArena
from evorl.mdp.conformance import Nonconformity
from evorl.mdp.core import Arena, Array, Box, Decisions, Discrete, Input, Spec, State, StateDict, Step, World
from evorl.mdp.decision_arrays import empty_decisions
from evorl.mdp.duel import Duel
from evorl.mdp.pong import Pong
from evorl.mdp.problem import Problem
from evorl.util.seed import Episodes, generator

CONF = Path(__file__).parents[2] / "conf" / "mdp"
FILES = sorted(path.stem for path in CONF.glob("*.yaml"))

NEEDED = {
    "remote": {"command": "{python} {clients}/python/tag.py"},
    "gymnasium": {"id": "CartPole-v1"}, "openspiel": {"game": "leduc_poker"},
    "pettingzoo": {"id": "mpe2.simple_spread_v3"},
}  # fmt: skip
"""What a file leaves to its user."""
SHORT = {"soccer": {"seconds": 6.0}}
"""For worlds whose episodes are long: one of them has to end."""


def world_of(file: str) -> World:
    """The world that a file of conf/mdp describes, with what it inherits."""
    data: dict[str, Any] = yaml.safe_load((CONF / f"{file}.yaml").read_text())
    for parent in [name for name in data.pop("defaults", []) if name != "_self_"]:
        data = {**yaml.safe_load((CONF / f"{parent}.yaml").read_text()), **data}
    data |= NEEDED.get(file, {}) | SHORT.get(file, {})
    module, _, name = data.pop("_target_").rpartition(".")
    from evorl.util.typed import typed

    return typed(data, getattr(import_module(module), name))


@pytest.mark.slow_cases(
    "football",
    "atari_noframeskip",
    "halfcheetah",
    "humanoid",
    "humanoid_v4",
    "ant",
    "walker2d",
    "swimmer",
    "ant_v4",
    "walker2d_v4",
    "hopper_v4",
    "lunarlandercontinuous",
)
@pytest.mark.parametrize("file", [file for file in FILES if not isinstance(world_of(file), Problem)])
def test_every_world_of_evorl_conforms(file: str) -> None:
    with closing(world_of(file)) as world:
        world.ready()
        evorl.mdp.check(world, slots=2 * world.sides, decisions=20)


@pytest.mark.parametrize(
    "world",
    [
        Walk(),
        Walk(sides=2),
        Walk(sides=2, same_length=False),
        Walk(delay_ms=(0, 0.5)),
        Duel(side="both"),
        Duel(side="knight"),
        Pong(opponent="self"),
        Pong(opponent="random", side="left", rounds=2, delay_ms=(0, 0.05)),
    ],
    ids=str,
)
def test_worlds_in_other_shapes_conform(world: World) -> None:
    evorl.mdp.check(world, decisions=40)


@pytest.mark.parametrize("varied", [True, False])
def test_a_world_that_conforms_is_told_in_one_line(varied: bool, capsys: pytest.CaptureFixture[str]) -> None:
    evorl.mdp.check(Pong(opponent="self"), decisions=20, varied=varied)
    chance = "other keys, " if varied else ""
    assert capsys.readouterr().out == f"Pong passes: values, repetition, {chance}resume; 4 slots, 20 decisions each\n"


def test_check_is_imported_on_first_use() -> None:
    code = "import sys, evorl.mdp; assert not {'asyncio', 'numpy'} & sys.modules.keys(); evorl.mdp.check"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="chek"):
        evorl.mdp.chek  # noqa: B018


# ------------------------------------------------------------------ broken worlds, vectorised


@dataclass(frozen=True, kw_only=True)
class Dice(World):
    """A lockstep world of independent dice; ``fault`` names what is wrong with it."""

    fault: str = ""

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        return DiceArena(self.fault, slots, episodes)


class DiceArena:
    """An episode lasts six throws; an even sum at its end is a termination, an odd one a truncation."""

    drawn = 0

    def __init__(self, fault: str, slots: int, episodes: Episodes) -> None:
        action = Discrete(2) if fault != "box" else Box((-1.0, 0.0), (1.0, np.inf))
        seen = Input("sum", (2,), stacked=True) if fault == "stack" else Input("sum", (1,))
        self.spec = Spec(inputs=(seen,), action=action, masked=fault != "box")
        self.fault, self.slots, self.episodes = fault, slots, episodes
        self.sides = 2 if fault == "sides" else 1
        self.rows = empty_decisions(self.spec, slots)
        self.episode, self.throws, self.sums = (np.zeros(slots, np.int64) for _ in range(3))
        self.closed = 0
        self.look()

    def throw(self, slot: int) -> int:
        key = [int(self.episodes(slot, self.episode[slot]))]
        if self.fault == "not keyed":
            key = []
        if self.fault == "slots alike":
            key = [int(self.episodes(0, self.episode[slot]))]
        draw = int(generator("dice", *key, int(self.throws[slot])).integers(1, 7))
        if self.fault == "not repeatable":
            DiceArena.drawn += 1
            draw += DiceArena.drawn > 50
        return draw

    def look(self) -> None:
        rows = self.rows
        rows.slots = np.arange(self.slots)
        rows.inputs[0][:, 0] = self.sums
        if rows.legal is not None:
            rows.legal[:, 1] = self.sums % 2 == 0
        self.spoil(rows)

    def spoil(self, rows: Decisions) -> None:
        if self.throws[0] == 3:
            self.spoil_late(rows)
        match self.fault:
            case "dtype":
                rows.inputs = (rows.inputs[0].astype(np.float64),)
            case "shape":
                rows.reward = np.zeros((self.slots, 2), np.float32)
            case "inputs":
                rows.inputs = ()
            case "no mask":
                rows.legal = None
            case "order":
                rows.slots = rows.slots[::-1]
            case "first":
                rows.reward[0] = 1
            case "cost":
                rows.cost = 0
            case "cost below 0":
                rows.cost = -1

    def spoil_late(self, rows: Decisions) -> None:
        match self.fault:
            case "nan":
                rows.inputs[0][0] = np.nan
            case "reward":
                rows.reward[-1] = np.inf
            case "no choice" if rows.legal is not None:
                rows.legal[0] = False
            case "nobody":
                rows.slots = rows.slots[:0]

    def recv(self) -> Decisions:
        return self.rows

    def send(self, slots: Array, actions: Array) -> None:
        rows = self.rows
        rows.results, rows.cost = [], self.slots
        assert self.rows.legal is None or self.rows.legal[slots, actions[:, 0]].all()
        if self.fault == "box":
            assert (actions >= [-1, 0]).all() and (actions[:, 0] <= 1).all() and actions.dtype == np.float32
        for slot in range(self.slots):
            self.throws[slot] += 1
            draw = self.throw(slot)
            self.sums[slot] += draw
            rows.reward[slot] = draw
            self.end(slot, self.throws[slot] == 6)
        self.look()

    def end(self, slot: int, over: bool) -> None:
        rows, odd = self.rows, self.sums[slot] % 2 == 1
        if self.fault == "endless":
            over = False
        rows.terminated[slot] = over and (not odd or self.fault == "both")
        rows.truncated[slot] = over and odd
        if over:
            rows.final[0][slot] = self.sums[slot] if self.fault != "final" else np.nan
            result = {"fitness": float(self.sums[slot]) if self.fault != "result" else np.nan}
            if self.fault == "odd results" and odd:
                result["odd"] = 1.0
            if self.fault == "result's name":
                result["left wins"] = 1.0
            if self.fault != "no result":
                rows.results.append((slot, result))
            self.episode[slot] += 1
            self.throws[slot] = self.sums[slot] = 0
        elif self.fault == "early result":
            rows.results.append((slot, {"fitness": 0.0}))

    def render(self, slot: int = 0) -> None:
        return None

    def state_dict(self) -> StateDict:
        state = {"episode": self.episode.copy(), "throws": self.throws.copy(), "sums": self.sums.copy()}
        faults: dict[str, Any] = {"object": {"x": object()}, "number key": {1: 2}, "forgets": {"sums": self.sums * 0}}
        return state | faults.get(self.fault, {})

    def load_state_dict(self, state: StateDict) -> None:
        self.episode[:], self.throws[:], self.sums[:] = state["episode"], state["throws"], state["sums"]
        if self.fault == "forgets more":
            self.throws -= 1
        self.rows.reward[:] = self.fault == "restored reward"
        self.rows.cost = int(self.fault == "restored cost")
        self.look()

    def close(self) -> None:
        self.closed += 1
        if self.fault == "closes once" and self.closed > 1:
            raise Nonconformity("closed twice")
        if self.fault == "thread":
            threading.Thread(target=STOP.wait, args=(60,), name="forgotten", daemon=True).start()


STOP = threading.Event()

FAULTS = {
    "dtype": r"inputs 'sum' must be float32 \[4, 1\], not float64 \[4, 1\]",
    "shape": r"reward must be float32 \[4, 1\], not float32 \[4, 2\]",
    "inputs": "inputs has 0 arrays, the spec has 1",
    "nan": "inputs 'sum' is not finite",
    "reward": "a reward is not finite",
    "stack": "the input 'sum' is no stack of the newest 2 frames, .* a state does not go on from the one before",
    "no choice": "legal leaves no legal choice in head 0",
    "no mask": "legal and the spec's masked=True contradict",
    "order": r"slots must be rising numbers below 4, not \[3, 2, 1, 0\]",
    "nobody": r"slots must be rising numbers below 4, not \[\]",
    "first": "slot 0 has a reward or an end before its first action",
    "sides": "the arena's sides must be 1, as the world's are, not 2",
    "cost": "the costs add up to 0",
    "cost below 0": "cost must be a whole number >= 0, not -1",
    "both": r"the slots \[\d.*\] are terminated and truncated at once",
    "final": "final 'sum' is not finite",
    "result": "the result 'fitness' is not a finite number but nan",
    "result's name": r"slot \d: 'left wins' cannot name a reward or a result",
    "odd results": r"slot \d: the results \['odd'\] are those of some episodes only",
    "no result": r"slot \d ended an episode without results",
    "early result": r"slot \d has an entry in results though its episode did not end",
    "endless": r"no episode ended in \d+ decisions",
    "not repeatable": r"slot \d, decision \d+: with the same key and actions it saw something else",
    "not keyed": "the episode keys change nothing",
    "slots alike": "all slots see the same",
    "object": r"state_dict\(\)\['x'\] holds a object, which a checkpoint cannot",
    "number key": r"state_dict\(\) has the key 1, which is no string",
    "forgets": "a restored arena shows something else than when it was saved",
    "forgets more": "an arena restored from a saved state went another way",
    "restored reward": "a restored arena must show no reward and no end at first",
    "restored cost": "a restored arena counts steps or reports results again",
    "closes once": "closed twice",
    "thread": r"closed arenas leave threads behind: \['forgotten'",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_rule_is_named(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("conformance", "playthrough"):
        monkeypatch.setattr(f"evorl.mdp.{module}.MAX_DECISIONS", 200)
    STOP.clear()
    try:
        with pytest.raises(Nonconformity, match=FAULTS[fault]):
            evorl.mdp.check(Dice(fault=fault), decisions=30)
    finally:
        STOP.set()


@pytest.mark.parametrize("fault", ["", "box"])
def test_the_same_world_without_a_fault_conforms(fault: str) -> None:
    evorl.mdp.check(Dice(fault=fault), decisions=30)


def test_a_world_without_chance_conforms_when_it_says_so() -> None:
    evorl.mdp.check(Dice(fault="not keyed"), decisions=30, varied=False)


# ------------------------------------------------------------------ broken battles


class Leaky(WalkBattle):
    """Starts a task and does not end it."""

    async def __aenter__(self) -> Any:
        self.task = asyncio.get_running_loop().create_task(asyncio.sleep(60), name="forgotten")
        return self


class Crowded(WalkBattle):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.controllers = [*self.controllers, *self.controllers]


def change(name: str, wrong: Callable[[Any, Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Spoils what a Walker's state or step says."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        if name == "state":
            real: Any = vars(Walker)["state"]
            monkeypatch.setattr(Walker, "state", property(lambda self: wrong(self, real.fget(self))))
            return
        call = Walker.__call__

        async def spoiled(self: Walker, action: Array) -> Step:
            return wrong(self, await call(self, action))

        monkeypatch.setattr(Walker, "__call__", spoiled)

    return patch


BATTLE_FAULTS: Mapping[str, tuple[Any, str]] = {
    "float64": (
        change("state", lambda self, s: State((s.inputs[0].astype(float), s.inputs[1]), s.legal)),
        r"a state's input 'place' must be float32 \[1, 2\], not float64",
    ),
    "missing input": (
        change("state", lambda self, s: State(s.inputs[:1], s.legal)),
        "a state's input has 1 arrays, the spec has 2",
    ),
    "free steps": (change("call", lambda self, s: s._replace(cost=0)), "cost must be at least 1, not 0"),
}


@pytest.mark.parametrize("fault", BATTLE_FAULTS)
def test_a_broken_battle_is_named(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, sentence = BATTLE_FAULTS[fault]
    patch(monkeypatch)
    with pytest.raises(Nonconformity, match=sentence):
        evorl.mdp.check(Walk(sides=2), decisions=10)


def test_a_world_that_raises_now_and_then_is_refused() -> None:
    acts = count()

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        if next(acts) == 12:
            raise OSError("the link broke")

    with pytest.raises(Nonconformity, match=r"slot \d had to start its episode again: its world raised"):
        evorl.mdp.check(Walk(event=event), decisions=10)


def test_a_battle_that_leaves_tasks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walk, "reset", lambda self, *players, seed: Leaky(self, players, seed))
    with pytest.raises(Nonconformity, match=r"a battle that was left early has tasks that go on: .*object sleep at"):
        evorl.mdp.check(Walk(), decisions=10)


def test_a_battle_with_too_many_controllers_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walk, "reset", lambda self, *players, seed: Crowded(self, players, seed))
    with pytest.raises(Nonconformity, match="asked for 1 sides has 2 controllers"):
        evorl.mdp.check(Walk(), decisions=10)


@pytest.mark.parametrize("seed", [0, 1])
def test_other_keys_are_those_of_another_run(seed: int) -> None:
    evorl.mdp.check(Walk(), decisions=10, seed=seed)


def test_slots_that_come_late_after_a_load_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load = BattleArena.load_state_dict

    def load_without_one(self: BattleArena, state: StateDict) -> None:
        load(self, state)
        self._newly_waiting.append(self._restored.pop())

    monkeypatch.setattr(BattleArena, "load_state_dict", load_without_one)
    with pytest.raises(Nonconformity, match="does not return the slots that waited when it was saved"):
        evorl.mdp.check(Walk(), slots=4, decisions=10)


def test_returning_a_waiting_slot_again_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BattleArena.send
    monkeypatch.setattr(BattleArena, "send", lambda self, slots, actions: real(self, slots[1:], actions[1:]))
    monkeypatch.setattr("evorl.mdp.playthrough.Playthrough._send", _send_some)
    arena_recv = BattleArena.recv

    def recv(self: BattleArena) -> Decisions:
        now = arena_recv(self)
        now.slots = np.arange(self.slots)
        return now

    monkeypatch.setattr(BattleArena, "recv", recv)
    with pytest.raises(Nonconformity, match="a slot that still waits"):
        evorl.mdp.check(Walk(longest=99), decisions=10)


def _send_some(course: Any) -> None:
    """Answers all but the first slot."""
    slots = sorted(course.waiting)
    course.arena.send(np.array(slots, np.int64), np.zeros((len(slots), 1), np.int64))
    course.waiting = set(slots[:1])
