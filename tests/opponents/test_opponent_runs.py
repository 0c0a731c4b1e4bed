"""Whole runs against opponents: the same bits anywhere, exact when resumed, and what is refused."""

from __future__ import annotations

import atexit
import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from harness import QUICK, WORLDS, fingerprint, go

from evorl.cluster.local import LocalGroup
from evorl.mdp.pong import Pong
from evorl.nets.policy import Net
from evorl.opponents.core import PastSelves
from evorl.opponents.pool import Pool
from evorl.opponents.sampler import OpposedLockstep, OpposedSampler
from evorl.record import checkpoint
from evorl.rl.ppo import PPO
from evorl.training.train import spec

POOL = ("opponents=pfsp", "opponents.snapshot=512", "opponents.capacity=2", "opponents.explore=0.2")
PONG, DUEL = WORLDS["pong"], ("mdp=duel", "mdp.ground.limit=5")
TEAMS = ("mdp=soccer", "mdp.control=player", "mdp.seconds=2")
CASES = {
    "pong": (*PONG, *POOL),
    "promoted": (*PONG, *POOL, "opponents.promote=0.3", "opponents.updates=4"),
    "duel": (*DUEL, *POOL),
    "recurrent": (*DUEL, *POOL, "rl.net.lstm=8"),
    "dqn": (*PONG, *POOL, "rl=dqn", "~rl.minibatch", "~rl.passes"),
    "deterministic": (*PONG, *POOL, "opponents.deterministic=true", "rl.normalize_inputs=true"),
    "several members": (*PONG, *POOL, "rl.members=2"),
    "rule player": (*PONG, "opponents=rule"),
    "rule player and runs": (*DUEL, *POOL, "opponents.rule=true", "opponents.runs=[OTHERS/small,OTHERS/memory@best]"),
    "teams": (*TEAMS, *POOL),
    "in a cycle": (*PONG, "opponents=runs", "opponents.runs=[OTHERS/other]", "opponents.choice=cycle"),
}
OTHERS = {
    "small": (*DUEL, "rl.net.hidden=[4]"),
    "memory": (*DUEL, "rl.net.lstm=4", "rl.normalize_inputs=true"),
    "other": (*PONG, "rl.net.hidden=[4]"),
}
"""Runs whose policies are in pools."""
QUICK_DQN = tuple(word for word in QUICK if not word.startswith(("rl.minibatch", "rl.passes", "rl.horizon")))


@cache
def others() -> Path:
    """A folder of the runs in pools, which are made once."""
    place = Path(mkdtemp())
    for name, words in OTHERS.items():
        assert go(*QUICK, *words, "budget.steps=500", f"hydra.run.dir={place / name}") == 0
    atexit.register(rmtree, place)
    return place


def with_place(text: str) -> str:
    return text.replace("OTHERS", str(others())) if "OTHERS" in text else text


def run(directory: Path, case: str, steps: int, *words: str) -> Path:
    quick = (*QUICK_DQN, "rl.warm_up=64") if case == "dqn" else QUICK
    own = [with_place(word) for word in CASES[case] if not word.startswith("~")]
    assert go(*quick, *own, f"budget.steps={steps}", f"hydra.run.dir={directory}", *words) == 0
    return directory


def table(directory: Path, aside: int = -1) -> list[dict[str, Any]]:
    """The rows of opponents.jsonl but those of a stop."""
    rows = map(json.loads, (directory / "opponents.jsonl").read_text().splitlines())
    return [row for row in rows if not (row["step"] == aside and row["present"])]


@pytest.mark.slow_cases(but=("rule player and runs",))
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(case: str, tmp_path: Path) -> None:
    steps = 4000 if case == "dqn" else 2000
    whole = run(tmp_path / "whole", case, 2 * steps)
    part = run(tmp_path / "part", case, steps)
    stop = checkpoint.steps(part)[-1]  # where it was evaluated, as the other was not
    assert go(f"resume={part}", f"budget.steps={2 * steps}") == 0
    assert fingerprint(whole, aside=[stop]) == fingerprint(part, aside=[stop])
    assert table(whole, aside=stop) == table(part, aside=stop)
    pool = checkpoint.run_state(whole)[1]["source"]["pool"]
    few = case in ("promoted", "rule player", "in a cycle")
    assert (len(pool["snapshots"]) == 2 and pool["next"] > 2) or few


@pytest.mark.slow
@pytest.mark.parametrize("case", ["pong", "recurrent", "several members", "rule player and runs", "in a cycle"])
def test_workers_change_no_bit(case: str, tmp_path: Path) -> None:
    here = run(tmp_path / "here", case, 3000)
    there = run(tmp_path / "there", case, 3000, "cluster=processes", "cluster.workers=2")
    assert fingerprint(here) == fingerprint(there) and table(here) == table(there)


class Watched(LocalGroup):
    """Members here, of which one is made again before a call, as if its process had been killed."""

    def __init__(self, make: Callable[[int], Any], size: int, killed: int) -> None:
        super().__init__(make, size, ())
        self.make, self.killed, self.new = make, killed, list[list[int]]()

    def set_recovery_state(self, state: Callable[[], object]) -> None:
        self.recovery: Callable[[], Any] = state

    def all(self, method: str, *args: Any) -> list[Any]:
        self.new.append(args[2])
        if len(self.new) == self.killed:
            before, self.members[0] = self.members[0].state_dict(), self.make(0)
            self.members[0].load_state_dict(self.recovery())
            self.members[0].load_state_dict(before)
        return super().all(method, *args)


def test_the_weights_of_an_opponent_are_sent_once_and_a_new_member_is_told_them() -> None:
    def played(killed: int) -> tuple[list[list[int]], list[Any]]:
        rl = PPO(slots=8, horizon=8, minibatch=64, net=Net(hidden=(8,)))
        world, config = Pong(rounds=2, round_steps=20), PastSelves(latest=0.3, updates=2, capacity=2)
        make = partial(OpposedSampler, config, (), world.all_sides(), rl, 1, torch.device("cpu"))
        group = Watched(make, 1, killed)
        learner = rl.learner(spec(world), 1, torch.device("cpu"))
        source, batches = OpposedLockstep(group, rl.storage(learner.spec, 8), Pool(config)), []
        for number in range(9):
            batches.append({name: str(x) for name, x in vars(source.take(learner, 0, number).update_input).items()})
            learner.theta.mul_(1.01)
        group.close()
        return group.new, batches

    new, batches = played(0)
    assert new == [[0], [], [1], [], [2], [], [3], [], [4]]
    assert played(6) == (new, batches) and batches[5] != batches[6]


@pytest.mark.slow
def test_policies_of_runs_stay_as_they_were(tmp_path: Path) -> None:
    """A run that goes on, or is no more, changes nothing for the runs that have its policy in their pools."""
    runs = tmp_path / "runs"
    assert go(*QUICK, *PONG, "budget.steps=500", f"hydra.run.dir={runs / 'other'}") == 0
    own = (*QUICK, *PONG, "opponents=runs", f"opponents.runs=[{runs / 'other'}]", "budget.steps=1000")
    for name in ("whole", "part"):
        assert go(*own, f"hydra.run.dir={tmp_path / name}") == 0
    stop = checkpoint.steps(tmp_path / "part")[-1]
    assert go(f"resume={tmp_path / 'whole'}", "budget.steps=2000") == 0
    rmtree(runs)
    assert go(f"resume={tmp_path / 'part'}", "budget.steps=2000") == 0
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "part")
    assert {row["step"] for row in table(tmp_path / "part")} > {stop}


def test_the_table_says_who_was_met_and_who_has_left(tmp_path: Path) -> None:
    rows = table(run(tmp_path / "run", "rule player and runs", 3000))
    assert {"rule", "small", "memory@best", "latest", "snapshot 0"} <= {row["opponent"] for row in rows}
    for row in rows:
        assert row["games"] == row["wins"] + row["draws"] + row["losses"]
        assert 0 <= row["low"] <= row["score"] <= row["high"] <= 1 and row["born"] <= max(row["step"], 1000)
    last = [row for row in rows if row["step"] == rows[-1]["step"] and row["present"]]
    assert sum(row["chance"] for row in last) == pytest.approx(1)
    left = {row["opponent"] for row in rows if not row["present"]}
    assert "snapshot 0" in left and not left & {row["opponent"] for row in last}


def test_the_numbers_of_opponents_are_in_the_metrics(tmp_path: Path) -> None:
    place = run(tmp_path / "run", "pong", 4000)
    rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "opponents/size" in row][-1]
    assert last["opponents/size"] == 2 and 0 <= last["opponents/score_worst"] <= last["opponents/score"] <= 1
    assert last["opponents/exploitability"] == max(0, 0.5 - last["opponents/score_worst"])
    assert not any("train/opponent" in row for row in rows)


def test_a_team_has_one_opponent_and_plays_one_game(tmp_path: Path) -> None:
    """Of 8 slots, two players in each game: 20 steps a game, and as many games in the table as were played."""
    place = run(tmp_path / "run", "teams", 600)
    state = checkpoint.run_state(place)[1]
    pool = state["source"]["pool"]["held"].values()
    games = sum(one["wins"] + one["draws"] + one["losses"] for one in pool)
    assert state["steps"] // 20 - 8 <= games == state["episodes"] / 2 <= state["steps"] // 20
    assert state["actors"]["0"]["actor"]["arena"]["number"].shape == (4,)
    league = ("ec=league", "ec.population=2", "ec.main_exploiters=0", "ec.league_exploiters=1", "ec.train_steps=128")
    place = tmp_path / "league"
    assert go(*QUICK, *TEAMS, *league, "ec.episodes=1", "budget.steps=500", f"hydra.run.dir={place}") == 0
    tables = [json.loads(line) for line in (place / "payoffs.jsonl").read_text().splitlines()]
    assert 0 < sum(map(sum, tables[0]["games"])) <= 2 * 2 * 128 / 20


def test_a_team_needs_all_of_its_slots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(*QUICK, *TEAMS, "opponents=past", "rl.slots=5", f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert "rl.slots: a team has 2 slots: take a multiple of that, such as 4" in capsys.readouterr().err
    assert go(*QUICK, *TEAMS, "opponents=past", "opponents.sides=[2]", f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert "opponents.sides: Soccer has the sides 0 to 1, not 2" in capsys.readouterr().err


@pytest.mark.slow
def test_self_play_learns_from_all_sides(tmp_path: Path) -> None:
    """It is what the world's own key for it does."""
    own = (*QUICK, *PONG, "mdp.opponent=self", "budget.steps=1000")
    assert go(*own, f"hydra.run.dir={tmp_path / 'world'}") == 0
    assert go(*QUICK, *PONG, "opponents=self", "budget.steps=1000", f"hydra.run.dir={tmp_path / 'group'}") == 0
    states = [checkpoint.run_state(tmp_path / name)[1] for name in ("world", "group")]
    assert str(states[0]["learner"]) == str(states[1]["learner"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mdp=cartpole"], "evorl: opponents: the games of CartPole-v1 have one side, so no opponent"),
        (["ec=pbt"], "evorl: opponents: opponents are those of one learner, with ec=none; leave it out"),
        (["rl=vtrace"], "evorl: opponents: opponents are chosen between two batches; add rl.asynchronous=false"),
        (["opponents.capacty=3"], "evorl: opponents.capacty: unknown key; did you mean opponents.capacity?"),
        (
            ["opponents.choice=hrd"],
            "evorl: opponents.choice: expected one of cycle, even, hard, newest, uniform, weights, got 'hrd'",
        ),
        (
            ["opponents=none", "opponents.latest=1"],
            "evorl: opponents.latest: unknown key of opponents=none; it belongs to opponents=past, opponents=pfsp",
        ),
        (["opponents=pats"], "evorl: opponents: no choice 'pats'; did you mean past?"),
        (["opponents=runs"], "evorl: opponents.runs: the pool is empty; name other runs: opponents.runs=[RUN_DIR,"),
        (["opponents.runs=[nowhere]"], "evorl: opponents.runs: "),
        (
            ["opponents.runs=[OTHERS/other]", "mdp=duel"],
            "evorl: opponents.runs: OTHERS/other plays Pong, this run Duel",
        ),
        (
            ["opponents.runs=[OTHERS/other@7]"],
            "evorl: opponents.runs: OTHERS/other@7: '7' is none of latest, last, ",
        ),
        (["opponents.runs=[OTHERS/other,OTHERS/other]"], "evorl: opponents.runs: OTHERS/other is named twice"),
        (["opponents.runs=[OTHERS]"], "evorl: opponents.runs: OTHERS: "),
        (["opponents.sides=[2]"], "evorl: opponents.sides: Pong has the sides 0 to 1, not 2"),
        (["opponents.sides=[0,0]"], "evorl: opponents.sides: expected one side or more, each once, got [0, 0]"),
        (["opponents.sides=[]"], "evorl: opponents.sides: expected one side or more, each once, got []"),
        (["opponents.choice=newest", "opponents.rule=true"], "evorl: opponents.choice: newest never chooses a rule"),
        (["opponents.choice=weights", "opponents.weights.past=0"], "evorl: opponents.weights: no opponent in the pool"),
        (
            ["opponents.weights.past=2"],
            "evorl: opponents.weights: uniform has no weights; take ",
        ),
        (["opponents.choice=cycle", "opponents.explore=0.1"], "evorl: opponents.explore: a cycle gives every opponent"),
    ],
)
def test_what_is_refused(words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if any("OTHERS" in word for word in words):
        words, text = [with_place(word) for word in words], with_place(text)
        capsys.readouterr()  # what the training of the others says
    assert go("opponents=past", *words, "budget.steps=500", f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert said.startswith(text) and said.count("\n") == 1, said
    assert not (tmp_path / "run").exists()


def hostile(place: Path, damage: str) -> None:
    """A run that somebody else has damaged or laid out as a trap."""
    copytree(others() / "other", place)
    match damage:
        case "foreign class":
            config = place / ".hydra" / "config.yaml"
            config.write_text(config.read_text().replace("evorl.rl.ppo.PPO", "os.system.Popen"))
        case "bits":
            for step in checkpoint.steps(place):
                largest = max((place / "checkpoints" / str(step)).iterdir(), key=lambda one: one.stat().st_size)
                data = bytearray(largest.read_bytes())
                data[len(data) // 2] ^= 255
                largest.write_bytes(data)
        case "link":
            rmtree(place / "checkpoints")
            (place / "checkpoints").symlink_to(others() / "other" / "checkpoints")
        case "other network":
            config = place / ".hydra" / "config.yaml"
            config.write_text(re.sub(r"(hidden:\n\s+- )4", r"\g<1>5", config.read_text()))


@pytest.mark.parametrize("damage", ["foreign class", "bits", "link", "other network"])
def test_a_hostile_run_is_refused(damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile(tmp_path / "other", damage)
    capsys.readouterr()
    words = ("opponents=runs", f"opponents.runs=[{tmp_path / 'other'}]", f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*QUICK, *PONG, *words, "budget.steps=500") == 2
    said = capsys.readouterr().err
    assert said.startswith("evorl: opponents.runs: ") and said.count("\n") == 1, said
    assert not (tmp_path / "run").exists()
