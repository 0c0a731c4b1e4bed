"""The config of Atari games from images.

Two files name a protocol. `conf/mdp/atari.yaml` is that of Machado et al. 2018 (gymnasium's ids ``ALE/...-v5``): sticky
actions, full games. `conf/mdp/atari_noframeskip.yaml` is that of Mnih et al. 2015 and OpenAI's baselines
(``...NoFrameskip-v4``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Annotated, Literal

from msgspec import Meta

from evorl.mdp.core import Arena, World
from evorl.util import command
from evorl.util.errors import BadRequest, nearest
from evorl.util.seed import Episodes
from evorl.util.types import Count, Fraction, Natural

MAX_FRAMES = 108_000
"""Half an hour of play, after which both protocols cut a game."""
FRAMES_PER_S = 60
TWO_PLAYERS = ("combat", "joust", "maze_craze", "warlords")
"""Cartridges of ale-py that need several players."""

RewardClip = Literal["sign", "clamp", "soft_asymmetric"]


@dataclass(frozen=True, kw_only=True)
class Atari(World):
    """An Atari game from pictures. An environment step is ``frame_skip`` frames. Needs the extra atari."""

    game: str = "pong"
    """ale-py's name of the game."""
    sticky: Fraction = 0.25
    """Probability that a frame repeats the previous frame's action instead."""
    frame_skip: Count = 4
    """Frames that an action holds for. A picture is the maximum of the last two."""
    size: Annotated[int, Meta(ge=36, le=210)] = 84
    """Height and width of a picture in pixels."""
    stack: Count = 4
    """Pictures in an observation, the newest last."""
    noop_max: Natural = 0
    """A game begins with 1 to this number of frames without action."""
    fire_reset: bool = False
    """Press fire and then the third action at the start of a game, and of a life, in games that have a fire button."""
    episodic_life: bool = False
    """A lost life ends the learner's episode, and the game goes on; in training only."""
    reward_clip: RewardClip | None = "sign"
    """What the learner receives of a step's points; results count points."""
    full_action_space: bool = False
    """All 18 actions, instead of those that have an effect in this game."""
    time_limit: Count | None = None
    """Environment steps after which a game is truncated; null: 108 000 frames."""
    budget: Count = 10_000_000

    def __post_init__(self) -> None:
        known = games()
        if known and self.game not in known:
            raise BadRequest(f"ale-py has no game {self.game}{nearest(self.game, known)}", "game")

    def ready(self) -> None:
        if not games():
            raise BadRequest(f"{self.game} needs more than is installed: {command.install('atari')}", "game")

    @property
    def title(self) -> str:
        return self.game

    @property
    def longest_episode(self) -> int:
        return self.time_limit or -(-MAX_FRAMES // self.frame_skip)

    @property
    def seconds_per_step(self) -> float:
        return self.frame_skip / FRAMES_PER_S

    def capped(self, steps: int) -> Atari:
        return replace(self, time_limit=min(steps, self.longest_episode))

    def evaluation_world(self) -> Atari:
        """Evaluations play full games."""
        return replace(self, episodic_life=False)

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        from evorl.mdp.atari.arena import AtariArena

        return AtariArena(self, slots, episodes)


def games() -> list[str]:
    """Return the names of ale-py's games for one player; empty without ale-py."""
    if find_spec("ale_py") is None:
        return []
    from ale_py.roms import get_all_rom_ids

    return [name for name in get_all_rom_ids() if name not in TWO_PLAYERS]
