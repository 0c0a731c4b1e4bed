"""Atari games from images, on ale-py's emulator.

Start with `evorl.mdp.atari.world`, the config: protocol, pictures, rewards. `arena` plays many games, `console` is one
emulator, `pictures` makes an observation of frames, `scores` are those of random play and of humans. The emulator is
loaded only when a game is played. The vectorised Pong without images is not here but in `evorl.mdp.pong`.
"""

from evorl.mdp.atari.world import Atari as Atari
