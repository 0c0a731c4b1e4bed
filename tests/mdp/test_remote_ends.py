"""Episodes of games in other programs that evorl cuts, or saves in their midst."""

from __future__ import annotations

import re
import shlex
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import go
from remote_games import FAULTY, TAG, Records, opened

import evorl.mdp
from evorl.mdp.core import StateDict
from evorl.mdp.forms import Mismatch
from evorl.mdp.remote import Remote
from evorl.mdp.remote.arena import RemoteArena
from evorl.mdp.remote.messages import Unplayable
from evorl.nets.policy import Net
from evorl.rl.core import Episode
from evorl.rl.evaluation import play_episodes
from evorl.rl.ppo import PPO
from evorl.training.train import spec


def played(max_steps: int, **keys: Any) -> list[Episode]:
    with closing(Remote(opponent="game", **keys)) as world:
        learner = PPO(net=Net(hidden=(4,))).learner(spec(world), 0, torch.device("cpu"))
        return play_episodes(learner, world, 0, 3, max_steps, deterministic=True)


def test_an_episode_that_is_cut_has_no_results_of_its_game() -> None:
    """They would be those of no episode: 0."""
    line = (
        r"an episode of tag had no end after 5 steps \(eval.max_steps\), so it has no fitness: let the game end it "
        "after a limit, and declare that limit as mdp.time_limit"
    )
    with pytest.raises(Mismatch, match=f"^{line}$"):
        played(5, command=TAG)


@pytest.mark.slow
def test_a_declared_limit_mends_a_run_that_an_evaluation_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("mdp=remote", f"mdp.command='{TAG}'", "mdp.opponent=game", "rl=ppo", "rl.slots=2", "rl.horizon=8")
    small = ("rl.minibatch=16", "rl.net.hidden=[4]", "budget.steps=64", "eval.every=32", "eval.episodes=2")
    assert go(*words, *small, "eval.max_steps=5", f"hydra.run.dir={tmp_path}/run") == 1
    told = capsys.readouterr()
    assert "and declare that limit as mdp.time_limit" in told.err
    again = re.search(r"resume with: .*-m evorl.run (resume=.*); the cause", told.out)
    assert again is not None and go(*shlex.split(again[1]), "mdp.time_limit=200") == 0
    assert go(*shlex.split(again[1]), "mdp.side=runner") == 2


NIM = f"{sys.executable} {Path(__file__).parent}/nim_game.py"


def test_a_side_that_does_not_ask_at_first_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners wait for the first state of each side, and this game for the first answer."""
    monkeypatch.setattr("evorl.mdp.remote.battles.PAUSES_S", (0.0, 0.0))
    line = "has not asked for second for 0.3 s: each side asks when a battle begins, also in games of turns"
    with opened(2, NIM, deadline_s=0.3) as arena:
        assert arena.recv().slots.tolist() == [0]
        with pytest.raises(Unplayable, match=f"was lost 3 times; at last .* {line}"):
            arena.recv()


def test_a_side_may_ask_late_where_others_are_answered() -> None:
    with opened(2, NIM, deadline_s=5.0) as arena:
        records = Records(arena).play(60)
    assert records.failed == 0 and records.together[0] == [0]


def test_an_episode_that_its_game_ends_at_the_limit_has_its_results() -> None:
    ended = [(one.length, one.results["win"], one.ret) for one in played(200, command=TAG)]
    assert any(length == 200 for length, _, _ in ended)
    assert all(win == (ret == 1) for _, win, ret in ended)


def test_an_episode_of_a_game_without_results_is_cut() -> None:
    cut = played(5, command=f"{FAULTY} 'no results' -")
    assert all(5 <= one.length <= 7 and not one.results for one in cut)


def test_an_arena_is_saved_while_some_sides_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sides decide at their own times, so there may be no moment at which all of them wait."""
    saved, save = list[bool](), RemoteArena.state_dict

    def state_dict(arena: RemoteArena) -> StateDict:
        saved.append(bool(arena._waits.all()))
        return save(arena)

    monkeypatch.setattr(RemoteArena, "state_dict", state_dict)
    with closing(Remote(command=TAG)) as world:
        evorl.mdp.check(world, slots=6, decisions=30)
    assert saved == [False] * 3  # it is saved again after each load


def test_rows_that_come_between_a_load_and_the_next_recv_are_received_later() -> None:
    """The game plays on while evorl loads the rest of a run. Here its rows come one after the other."""
    command = f"{FAULTY} pieces -"
    with opened(8, command) as arena:
        records = Records(arena).play(3)
        waiting = sorted(records.waiting)[:2]
        records.waiting.difference_update(waiting)
        records.send()
        state = arena.state_dict()
    with opened(8, command) as arena:
        arena.load_state_dict(state)
        time.sleep(0.3)
        assert arena.recv().slots.tolist() == waiting
        assert not set(arena.recv().slots.tolist()).intersection(waiting)


def test_a_saved_arena_keeps_what_nobody_has_received_of_ended_episodes() -> None:
    """The next episode has begun and has no first row yet, so no replay would bring the outcome of the last one."""
    many = 120
    with opened(4) as arena:
        undisturbed = Records(arena).play(many).first(many)
    with opened(4, f"{FAULTY} pieces -") as arena:
        inner: Any = arena
        records = Records(arena)
        while not any(
            inner._rows.terminated[slot] for slot in {0, 1, 2, 3} - records.waiting if not inner._ended[slot]
        ):
            assert len(records.rows[0]) < many
            records.send()
            records.recv()
        state, had = arena.state_dict(), [len(rows) for rows in records.rows]
    with opened(4) as arena:
        arena.load_state_dict(state)
        later = Records(arena)
        later.recv()
        later.rows = [seen[:n] for seen, n in zip(records.rows, had, strict=True)]
        assert later.play(many).first(many) == undisturbed


def test_a_game_that_fails_as_it_begins_an_episode_costs_no_results_of_the_last_one(tmp_path: Path) -> None:
    with opened(2, f"{FAULTY} second {tmp_path}/mark 0 mortal") as arena:
        records = Records(arena).play(100)
    assert (tmp_path / "mark").exists()
    ended = [(result, ends) for rows in records.rows for _, _, ends, _, result in rows if any(ends)]
    assert len(ended) > 2 and all(result for result, _ in ended)
