"""A stand-in for the engine of Google Research Football, with as much of its interface as evorl speaks to.

One player of each team runs, whoever comes near the ball has it, and a shot near the goal scores. With
``STAND_IN_CRASH="STEP FILE"`` it crashes in that step of a game once for each line of the file.
"""

import enum
import os
import random
import signal
from pathlib import Path
from types import SimpleNamespace

GameState = enum.Enum("GameState", "game_created game_running game_done")
e_Team = enum.Enum("e_Team", "e_Left e_Right")
e_PlayerRole = enum.Enum("e_PlayerRole", "e_PlayerRole_GK e_PlayerRole_CB")
DIRECTIONS = ("left", "top_left", "top", "top_right", "right", "bottom_right", "bottom", "bottom_left")
OTHERS = (
    "idle", "long_pass", "high_pass", "short_pass", "shot", "sprint", "release_direction", "release_sprint", "sliding",
    "dribble", "release_dribble", "builtin_ai",
)  # fmt: skip
e_BackendAction = enum.IntEnum("e_BackendAction", [*DIRECTIONS, *OTHERS], start=0)
MOVES = dict(zip(DIRECTIONS, [(-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1)], strict=True))
SPEED, REACH = 0.02, 0.03


class ScenarioConfig(SimpleNamespace):
    @staticmethod
    def make():
        return ScenarioConfig(
            ball_position=[0.0, 0.0], left_team=[], right_team=[], left_agents=1, right_agents=0, offsides=True,
            real_time=False, game_engine_random_seed=42, reverse_team_processing=False, deterministic=False,
            end_episode_on_score=False, end_episode_on_possession_change=False, end_episode_on_out_of_play=False,
            game_duration=3000,
        )  # fmt: skip


def FormationEntry(x, y, role, lazy, controllable):
    return SimpleNamespace(position=[x, y], role=role, lazy=lazy, controllable=controllable)


class GameEnv:
    def __init__(self):
        self.game_config, self.state = SimpleNamespace(), GameState.game_created

    def start_game(self):
        self.state = GameState.game_running

    def reset(self, config, animations):
        self.config, self.draw, self.steps = config, random.Random(config.game_engine_random_seed), -1
        self.goals, self.owner = [0, 0], -1
        self.teams = [
            [[sign * x for x in each.position] for each in team]
            for team, sign in ((config.left_team, 1), (config.right_team, -1))
        ]
        x, y = config.ball_position
        self.ball, self.moves, self.wish = [x, y + self.draw.gauss(0, 0.004), 0.0], [(0, 0), (0, 0)], ["idle", "idle"]

    def perform_action(self, action, left, index):
        assert index == 0 and (self.config.left_agents if left else self.config.right_agents) == 1
        self.wish[0 if left else 1] = e_BackendAction(action).name

    def step(self):
        self.steps += 1
        if self.steps == 0:
            return  # the ball is in play from here on
        self._crash()
        for side, team in enumerate(self.teams):
            wish = self.wish[side] if (self.config.left_agents, self.config.right_agents)[side] else "builtin_ai"
            if wish == "builtin_ai":
                self.moves[side] = (self.draw.choice((-1, 0, 1)), self.draw.choice((-1, 0, 1)))
            self.moves[side] = MOVES.get(wish, self.moves[side])
            team[-1] = [p + SPEED * v for p, v in zip(team[-1], self.moves[side], strict=True)]
            if max(abs(a - b) for a, b in zip(team[-1], self.ball[:2], strict=True)) < REACH:
                self.owner, self.ball[:2] = side, team[-1]
                if wish == "shot" and (1 - 2 * side) * self.ball[0] > 0.7:
                    self.goals[side] += 1
                    self.ball[:2], self.owner = [0.0, 0.0], -1

    def _crash(self):
        step, _, file = os.environ.get("STAND_IN_CRASH", "-1 none").partition(" ")
        if self.steps == int(step) and (lines := Path(file).read_text().splitlines()):
            Path(file).write_text("\n".join(lines[1:]))
            os.kill(os.getpid(), signal.SIGSEGV)

    def get_info(self):
        teams = [
            [SimpleNamespace(position=place, direction=self.moves[side]) for place in team]
            for side, team in enumerate(self.teams)
        ]
        controllers = [[SimpleNamespace(controlled_player=len(team) - 1)] for team in teams]
        return SimpleNamespace(
            ball_position=self.ball, ball_direction=[0.0, 0.0, 0.0], left_team=teams[0], right_team=teams[1],
            left_controllers=controllers[0], right_controllers=controllers[1], left_goals=self.goals[0],
            right_goals=self.goals[1], is_in_play=self.steps >= 0, ball_owned_team=self.owner,
            ball_owned_player=-1 if self.owner < 0 else len(teams[self.owner]) - 1, game_mode=0, step=self.steps,
        )  # fmt: skip
