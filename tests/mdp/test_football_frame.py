"""Football in the engine built from source: what a side sees of the record of a game, and what it is paid."""

from __future__ import annotations

import numpy as np
import pytest

from evorl.mdp.core import Array
from evorl.mdp.football.engine import ACTIONS, RULE, turned
from evorl.mdp.football.frame import FEATURES, FRAME, PLAYERS, checkpoints, picture, seen_by, simple115
from evorl.util.seed import generator


def some_frame(number: int) -> Array:
    draw = generator("frames", number)
    frame = np.zeros((), FRAME)
    frame["count"] = draw.integers(1, PLAYERS + 1, 2)
    for team, count in enumerate(frame["count"].tolist()):
        frame["places"][team, :count] = draw.uniform((-1.1, -0.6), (1.1, 0.6), (count, 2))
        frame["moves"][team, :count] = draw.normal(size=(count, 2))
        frame["active"][team] = draw.integers(-1, count)
    frame["ball"], frame["ball_move"] = draw.uniform(-1, 1, (2, 3))
    team = int(draw.integers(-1, 2))
    frame["owner"] = team, -1 if team < 0 else draw.integers(0, frame["count"][team])
    frame["score"], frame["mode"] = draw.integers(0, 3, 2), draw.integers(0, 7)
    return frame


@pytest.mark.parametrize("number", range(20))
def test_numbers_and_picture_are_those_of_their_definitions(number: int) -> None:
    frame = some_frame(number)
    numbers: list[float] = []
    for team in (0, 1):
        for part in ("places", "moves"):
            for player in range(PLAYERS):
                numbers += list(frame[part][team, player]) if player < frame["count"][team] else [-1.0, -1.0]
    numbers += [*frame["ball"], *frame["ball_move"]]
    numbers += {-1: [1, 0, 0], 0: [0, 1, 0], 1: [0, 0, 1]}[int(frame["owner"][0])]
    numbers += [float(frame["active"][0] == player) for player in range(PLAYERS)]
    numbers += [float(frame["mode"] == mode) for mode in range(7)]
    assert len(numbers) == len(FEATURES) == 115
    assert simple115(frame).tolist() == [float(x) for x in numbers] and simple115(frame).dtype == np.float32
    image = np.zeros((4, 72, 96), np.uint8)
    own, other = (frame["places"][team, : frame["count"][team]].tolist() for team in (0, 1))
    active = [own[frame["active"][0]]] if frame["active"][0] >= 0 else []
    for layer, points in enumerate((own, other, [frame["ball"][:2].tolist()], active)):
        for x, y in points:
            column = int((x - -1.0) / (1.0 - -1.0) * 96)
            row = int((y - -1 / 2.25) / (1 / 2.25 - -1 / 2.25) * 72)
            image[layer, max(0, min(71, row)), max(0, min(95, column))] = 255
    assert (picture(frame) == image).all()


@pytest.mark.parametrize("number", range(5))
def test_a_field_turned_twice_is_the_same(number: int) -> None:
    frame = some_frame(number)
    turn = seen_by(frame, 1)
    assert seen_by(turn, 1).tobytes() == frame.tobytes() and seen_by(frame, 0) is frame
    assert (turn["places"][0] == -frame["places"][1]).all() and turn["ball"][2] == frame["ball"][2]
    assert turn["score"].tolist() == frame["score"][::-1].tolist()
    where = {"left": "right", "top_left": "bottom_right", "top": "bottom", "top_right": "bottom_left"}
    where |= {b: a for a, b in where.items()}
    assert [ACTIONS[turned(n)] for n in range(len(ACTIONS))] == [where.get(name, name) for name in ACTIONS]
    assert turned(RULE) == RULE


def test_checkpoints_are_paid_once_on_the_way_and_the_rest_with_a_goal() -> None:
    frame = np.zeros((), FRAME)
    frame["count"], frame["active"], frame["owner"] = (2, 2), (1, -1), (0, 1)
    paid = 0
    for x, reward in ((-0.5, 0.0), (0.05, 0.1), (0.3, 0.3), (0.05, 0.0), (0.3, 0.0)):
        frame["ball"][0] = x
        told, paid = checkpoints(frame, False, paid)
        thresholds = [0.99 - 0.8 / 9 * k for k in range(10)]
        assert told == pytest.approx(reward) and paid >= sum(1 - x <= each for each in thresholds)
    assert checkpoints(frame, True, paid) == (pytest.approx(0.6), 10)
    for owner in ((1, 1), (0, 0), (-1, -1)):  # the other team's, another player's, nobody's
        frame["owner"] = owner
        assert checkpoints(frame, False, 0) == (0.0, 0)
