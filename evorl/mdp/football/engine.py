"""What runs in a process that plays one game after the other.

It speaks to the engine of Google Research Football and takes its scenarios, and needs nothing else of that package: its
environments are written for a gym that is no more. What it does between two steps of the engine is what the package
does (env/football_env_core.py, env/scenario_builder.py, env/observation_rotation.py). If it crashes, only this game is
over (`evorl.mdp.football.process`).

It answers each `REQUEST` on its standard input, a socket, with a record (`evorl.mdp.football.frame`).
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.football.frame import FRAME, GOES_ON, LATE, OVER

REQUEST = struct.Struct("<BIBbb")
"""What is asked; the seed of a new game, with `flags`; the actions of the left and the right side."""
BEGIN, STEP = range(2)
LEFT, RIGHT, REVERSED, EVEN = 1, 2, 4, 8
"""Flags of a new game: who decides for a player of each team; the right team moves first; an even game."""
RULE = -1
"""The action that leaves a decision to the built-in player."""
ACTIONS = (
    "idle", "left", "top_left", "top", "top_right", "right", "bottom_right", "bottom", "bottom_left", "long_pass",
    "high_pass", "short_pass", "shot", "sprint", "release_direction", "release_sprint", "sliding", "dribble",
    "release_dribble",
)  # fmt: skip
PATIENCE = 20
"""Steps outside normal play after which the side that holds up the game passes, and then runs with the ball."""


def turned(action: int) -> int:
    """The same action of a side that plays from right to left."""
    return (action + 3) % 8 + 1 if 1 <= action <= 8 else action


class Scenario:
    """What a scenario of the package builds."""

    def __init__(self, engine: Any, number: int) -> None:
        self._config = engine.ScenarioConfig.make()
        self._engine, self._number = engine, number
        self._team = self._config.left_team

    def config(self) -> Any:
        return self._config

    def EpisodeNumber(self) -> int:
        return self._number

    def SetBallPosition(self, x: float, y: float) -> None:
        self._config.ball_position[0], self._config.ball_position[1] = x, y

    def SetTeam(self, team: Any) -> None:
        self._team = self._config.left_team if team == self._engine.e_Team.e_Left else self._config.right_team

    def AddPlayer(self, x: float, y: float, role: Any, lazy: bool = False, controllable: bool = True) -> None:
        self._team.append(self._engine.FormationEntry(x, y, role, lazy, controllable))


class Engine:
    """An engine that plays games of one scenario."""

    def __init__(self, scenario: str) -> None:
        self._engine: Any = import_module("gfootball_engine")
        self._build = scenarios(scenario).build_scenario
        self._actions = [int(getattr(self._engine.e_BackendAction, name)) for name in (*ACTIONS, "builtin_ai")]
        self._game = self._engine.GameEnv()
        self._game.game_config.physics_steps_per_frame = 10
        self._game.game_config.render = False
        self._game.start_game()

    def begin(self, seed: int, flags: int) -> Array:
        """Begin a game; return its record."""
        scenario = Scenario(self._engine, 0 if flags & EVEN else 1)
        self._build(scenario)
        self._config = config = scenario.config()
        for team in (config.left_team, config.right_team):
            if not len(team):  # the engine needs somebody
                keeper = self._engine.e_PlayerRole.e_PlayerRole_GK
                team.append(self._engine.FormationEntry(-1.0, 0.42, keeper, True, True))
        config.real_time, config.game_engine_random_seed = False, seed
        config.left_agents, config.right_agents = int(bool(flags & LEFT)), int(bool(flags & RIGHT))
        config.reverse_team_processing = bool(flags & REVERSED)
        self._sides = [side for side, flag in enumerate((LEFT, RIGHT)) if flags & flag]
        self._waited, self._mode, self._owner = 0, -1, -1
        self._game.state = self._engine.GameState.game_running
        self._game.reset(config, False)
        while not self._look():
            self._game.step()
        return self._frame

    def step(self, actions: Sequence[int]) -> Array:
        """One step under the actions of both sides; only the actions of controlled sides count."""
        for side in self._sides:
            action = turned(actions[side]) if side else actions[side]
            if self._waited >= PATIENCE:
                action = self._restart(side)
            self._game.perform_action(self._actions[action], side == 0, 0)
        self._game.step()
        while not self._look():
            self._game.step()
        self._frame["over"] = self._end()
        return self._frame

    def _restart(self, side: int) -> int:
        """What a side does that has held up the game for too long."""
        if self._waited == PATIENCE:
            return ACTIONS.index("short_pass")
        if tuple(self._frame["owner"]) != (side, self._frame["active"][side]):
            return ACTIONS.index("idle")
        return ACTIONS.index("left" if (self._waited < PATIENCE + 10) != (side == 0) else "right")

    def _end(self) -> int:
        """Whether the game is over; also counts the steps outside normal play."""
        frame, config = self._frame, self._config
        mode, team = int(frame["mode"]), int(frame["owner"][0])
        out = config.end_episode_on_out_of_play and mode != 0 and self._mode == 0
        lost = config.end_episode_on_possession_change and team >= 0 and self._owner >= 0 and team != self._owner
        goal = config.end_episode_on_score and frame["score"].any()
        self._mode, self._owner = mode, team if team >= 0 else self._owner
        self._waited = self._waited + 1 if mode else 0
        if goal or out or lost:
            return OVER
        return LATE if frame["step"] >= config.game_duration else GOES_ON

    def _look(self) -> bool:
        """Take the record of the game; return whether the ball is in play."""
        info, frame = self._game.get_info(), np.zeros((), FRAME)
        for team, players in enumerate((info.left_team, info.right_team)):
            numbers = [(each.position[0], each.position[1], each.direction[0], each.direction[1]) for each in players]
            frame["count"][team] = len(numbers)
            frame["places"][team, : len(numbers)] = [row[:2] for row in numbers]
            frame["moves"][team, : len(numbers)] = [row[2:] for row in numbers]
        frame["ball"] = [info.ball_position[axis] for axis in range(3)]
        frame["ball_move"] = [info.ball_direction[axis] for axis in range(3)]
        frame["owner"] = info.ball_owned_team, info.ball_owned_player
        frame["active"] = -1
        for side in self._sides:
            frame["active"][side] = (info.right_controllers if side else info.left_controllers)[0].controlled_player
        frame["score"] = info.left_goals, info.right_goals
        frame["mode"], frame["step"] = int(info.game_mode), info.step
        self._frame = frame
        return bool(info.is_in_play)


def scenarios(name: str) -> ModuleType:
    """A scenario of the package, without the package's own beginning, which registers environments with gym."""
    if "gfootball" not in sys.modules:
        spec = find_spec("gfootball")
        if spec is None or spec.submodule_search_locations is None:
            raise ModuleNotFoundError("No module named 'gfootball'", name="gfootball")
        package = ModuleType("gfootball")
        package.__path__ = [*spec.submodule_search_locations]
        sys.modules["gfootball"] = package
    return import_module(f"gfootball.scenarios.{name}")


def main(scenario: str) -> None:
    """Play games of the scenario until the requests end."""
    requests = socket.socket(fileno=sys.stdin.fileno())
    engine = Engine(scenario)
    while len(request := requests.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
        what, seed, flags, *actions = REQUEST.unpack(request)
        frame = engine.begin(seed, flags) if what == BEGIN else engine.step(actions)
        requests.sendall(frame.tobytes())
