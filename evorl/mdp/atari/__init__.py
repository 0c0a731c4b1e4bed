"""Atari games from images; importing this package registers ``evorl/Atari-v0``.

Start with `evorl.mdp.atari.game`, the gymnasium environment over ale-py: preprocessing, actions and rewards. `world` is
the config. ale-py is imported only when an environment is made.
The vectorised Pong without images is not here but in `evorl.mdp.pong`.
"""

from evorl.mdp.atari.world import Atari as Atari
