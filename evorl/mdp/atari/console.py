"""An emulator of ale-py that plays one game of its kind after another, each from exactly the same state.

`load_state` makes an emulator's future a function of the state and the actions, whatever it played before. So a game's
start is a state that is taken once, and a saved game goes on in any emulator. Sticky actions are not drawn here but by
the arena: ale-py's generator is part of no state that a vector of emulators could be given.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import NamedTuple

import numpy as np
from ale_py import ALEInterface, ALEState, LoggerMode, roms

from evorl.mdp.core import Array

NOOP, FIRE = 0, 1
"""Two of ale-py's 18 actions. A game's own actions are numbers among these."""
WARM_UP = 5
"""Frames until an emulator has drawn both of its pictures anew, since some games leave lines as they were. The number
is odd, because some draw a line in every other frame only: the next frame then covers one in which it was drawn."""


class Console:
    """One emulator with the cartridge of ``game``. `act` plays a frame and returns its points."""

    def __init__(self, game: str) -> None:
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.game = game
        self.ale = ALEInterface()
        self.ale.setInt("random_seed", 0)
        self.ale.setFloat("repeat_action_probability", 0.0)
        rom = roms.get_rom_path(game)
        assert rom is not None
        self.ale.loadROM(rom)
        self.ale.reset_game()
        self.act = self.ale.act
        self.lives = self.ale.lives
        self.copy_frame = self.ale.getScreenGrayscale

    def over(self) -> bool:
        return bool(self.ale.game_over(with_truncation=False))

    def frame(self) -> Array:
        """Return the last frame in colour, uint8 [H, W, 3]."""
        return np.asarray(self.ale.getScreenRGB())

    def save_state(self) -> bytes:
        return bytes(self.ale.cloneState().serialize())

    def load_state(self, state: bytes) -> None:
        """Go on from a state. The last frame is undefined until the next `act`."""
        saved = ALEState(state)
        self.ale.restoreState(saved)
        for _ in range(WARM_UP):
            self.ale.act(NOOP)
        self.ale.restoreState(saved)


class Start(NamedTuple):
    """What is the same in every game of one kind."""

    state: bytes
    frame: Array  # uint8 [H, W], grey
    minimal_actions: tuple[int, ...]  # those that have an effect
    all_actions: tuple[int, ...]


@cache
def start_of(game: str) -> Start:
    """Return the state after the console's reset; it depends on no seed."""
    console = Console(game)
    ale = console.ale
    minimal, every = (
        tuple(action.value for action in actions) for actions in (ale.getMinimalActionSet(), ale.getLegalActionSet())
    )
    return Start(console.save_state(), ale.getScreenGrayscale(), minimal, every)


_IDLE: defaultdict[str, list[Console]] = defaultdict(list)
"""Consoles of closed arenas of the last game. Loading a cartridge takes as long as 270 steps, and evaluations open
arenas."""


def take_console(game: str) -> Console:
    """Return a console in an arbitrary state."""
    for other in [name for name in _IDLE if name != game]:
        del _IDLE[other]
    idle = _IDLE[game]
    return idle.pop() if idle else Console(game)


def give_back(console: Console) -> None:
    _IDLE[console.game].append(console)
