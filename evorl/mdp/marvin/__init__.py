"""Marvin, a two-legged robot that learns to walk; importing this package registers ``evorl/Marvin-v0``.

Start with `evorl.mdp.marvin.walker`, the gymnasium environment: observations, actions and reward. `body` builds the
robot and the ground in Box2D, `drawing` draws them with pygame, `world` is the config. Box2D and pygame are imported
only when an environment is made.
"""

from evorl.mdp.marvin.world import Marvin as Marvin
