"""Google Research Football in EnvPool's engine: exact games, and what the arena promises."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import pytest

from evorl.mdp.core import Array, WorldError
from evorl.mdp.football import Football
from evorl.mdp.football.arena import FootballArena, result
from evorl.mdp.football.games import Outcome
from evorl.mdp.football.world import SCENARIOS
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, Shifted

LENGTH = 40  # of a game: games of different seeds begin with the same picture, and differ before this

needs_engine = pytest.mark.skipif(find_spec("envpool") is None, reason="needs the extra football")


def arena(slots: int = 2, episodes: Episodes | None = None, **keys: Any) -> FootballArena:
    return FootballArena(Football(**keys), slots, episodes or Episodes(0))


def step(games: FootballArena, number: int) -> Array:
    """Actions that are a function of slot and step; the pictures after them."""
    slots = games.recv().slots
    games.send(slots, np.array([[(7 * number + slot) % 19] for slot in range(len(slots))]))
    return games.recv().inputs[0].copy()


@needs_engine
def test_a_saved_game_goes_on_bit_for_bit() -> None:
    one = arena(time_limit=25)
    for number in range(60):  # the third game
        step(one, number)
    two = arena(time_limit=25)
    two.load_state_dict(one.state_dict())
    try:
        assert (one.recv().inputs[0] == two.recv().inputs[0]).all()
        for number in range(60, 100):
            assert (step(one, number) == step(two, number)).all(), number
            assert one.recv().results == two.recv().results
    finally:
        one.close()
        two.close()


@needs_engine
def test_an_evaluation_game_is_given_by_its_key() -> None:
    """So that a film shows the game that was evaluated."""
    evaluation = arena(1, Episodes(3, "evaluate", evaluation=True), time_limit=LENGTH)
    film = arena(1, Shifted(3, "evaluate", evaluation=True, first_episode=2), time_limit=LENGTH)
    try:
        for number in range(2 * LENGTH):
            step(evaluation, number)
        assert (evaluation.recv().inputs[0] == film.recv().inputs[0]).all()
        for number in range(2 * LENGTH, 3 * LENGTH):
            assert (step(evaluation, number) == step(film, number)).all(), number
    finally:
        evaluation.close()
        film.close()


class Scored:
    """An engine whose left side scores in step 2 and loses a goal in step 4 of each game."""

    def __init__(self, *_: object) -> None:
        self.steps = 0

    def begin(self, number: int) -> None:
        self.steps = 0

    def begun(self, first: Array) -> bool:
        first[:] = 0
        return True

    def send(self, action: int) -> None:
        self.steps += 1

    def recv(self) -> tuple[Array, Outcome]:
        score = int(self.steps >= 2), int(self.steps >= 4)
        return np.zeros((4, 72, 96), np.uint8), Outcome(0.0, False, False, score)

    def close(self) -> None:
        pass


def test_what_a_game_has_come_to_is_known_and_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.football.arena.SlotGames", Scored)
    one, leads = arena(1, time_limit=6), []
    for number in range(8):
        leads.append([one.results_so_far(0)[name] for name in ("goals", "score", "length")])
        two = arena(1, time_limit=6)
        two.load_state_dict(one.state_dict())
        assert two.results_so_far(0) == one.results_so_far(0)
        step(one, number)
    goals = [[0, 0], [0, 0], [1, 1], [1, 1], [1, 0], [1, 0], [0, 0], [0, 0]]
    assert leads == [[*now, number % 6] for number, now in enumerate(goals)]


class Counting:
    """An engine in the place of EnvPool's. Its pictures tell the game and the actions in it."""

    made: ClassVar[list[Counting]] = []
    at_work: ClassVar[list[int]] = []
    """How many engines have a request to work on, at each `recv`."""

    def __init__(self, *_: object) -> None:
        self.asked, self.game, self.actions = False, 0, list[int]()
        self.length = 5 + len(self.made) % 3  # of each game
        self.made.append(self)

    def async_reset(self) -> None:
        assert not self.asked
        self.asked, self.game, self.actions = True, self.game + 1, []

    def send(self, action: Array, _: Array) -> None:
        assert not self.asked
        self.asked = True
        self.actions += action.tolist()

    def recv(self) -> tuple[Any, ...]:
        assert self.asked
        self.at_work.append(sum(each.asked for each in self.made))
        self.asked, seen = False, np.zeros((1, 72, 96, 4), np.uint8)
        seen[0, 0, : 1 + len(self.actions), 0] = [self.game, *self.actions]
        over = np.array([len(self.actions) == self.length])
        return seen, np.zeros(1), over, np.zeros(1, bool), {"score": np.zeros((1, 2), int)}

    def close(self) -> None:
        self.made.remove(self)


@pytest.mark.parametrize(
    ("limit", "lengths", "at_work"),
    [(4, [3, 3, 3], [3] * 3 + [3, 2, 1] * 4), (400, [1, 5, 4], [3, 3, 2, 1] + [3, 2, 1] + [2, 1] * 3 + [1])],
)
def test_a_run_is_resumed_in_all_slots_at_once(
    monkeypatch: pytest.MonkeyPatch, limit: int, lengths: list[int], at_work: list[int]
) -> None:
    """Each engine has a thread, so those of all slots work side by side: on earlier games, then on steps."""
    monkeypatch.setattr("evorl.mdp.football.games.engine", Counting)
    one = arena(3, time_limit=limit)
    for number in range(11):
        step(one, number)
    state, seen = one.state_dict(), one.recv().inputs[0].copy()
    one.close()
    two = arena(3, time_limit=limit)
    Counting.at_work.clear()
    two.load_state_dict(state)
    assert Counting.at_work == at_work
    assert (two.recv().inputs[0] == seen).all() and two._lengths.tolist() == lengths
    two.close()


@pytest.mark.parametrize(("change", "line"), [("length", "ended game 0 early"), ("game", "slot 0: .* another state")])
def test_an_engine_that_plays_otherwise_resumes_nothing(
    monkeypatch: pytest.MonkeyPatch, change: str, line: str
) -> None:
    monkeypatch.setattr("evorl.mdp.football.games.engine", Counting)
    with closing(arena(2)) as one:
        for number in range(3):
            step(one, number)
        state = one.state_dict()

    def other(*_: object) -> Counting:
        engine = Counting()
        setattr(engine, change, 2)
        return engine

    monkeypatch.setattr("evorl.mdp.football.games.engine", other)
    with closing(arena(2)) as two, pytest.raises(WorldError, match=line):
        two.load_state_dict(state)


@needs_engine
def test_a_game_that_lasts_is_truncated_with_its_last_picture() -> None:
    games = arena(2, time_limit=5)
    try:
        for number in range(4):
            before = step(games, number)
        assert before.any()
        step(games, 4)
        now = games.recv()
        assert now.truncated.all() and not now.terminated.any() and now.final[0].any()
        assert {slot for slot, _ in now.results} == {0, 1} and now.results[0][1]["length"] == 5
        image = games.render()
        assert (
            image.shape == (360, 480, 3) and len(np.unique(image.reshape(-1, 3), axis=0)) >= 3
        )  # grass, ball and player
    finally:
        games.close()


def test_results() -> None:
    assert result(2, 1, 30)["win"] == 1 and result(1, 1, 30)["win"] == 0.5 and result(0, 1, 30)["score"] == -1


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadRequest, match="did you mean academy_corner"):
        Football(scenario="academy_korner")
    with pytest.raises(BadRequest, match=r"no scenario nowhere; there are: academy_empty_goal_close, .*_kaggle"):
        Football(scenario="nowhere")
    with pytest.raises(BadRequest, match=r"^time_limit: academy_corner ends after 400 steps, so 401 does nothing; "):
        Football(scenario="academy_corner", time_limit=401)
    assert Football(time_limit=10).longest_episode == 10 and Football().capped(900).longest_episode == 400
    assert len(SCENARIOS) == 18


def test_a_missing_engine_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.football.world.find_spec", lambda name: None)
    with pytest.raises(BadRequest, match=r"pip install 'evorl-suite\[football\]'"):
        Football().ready()
