"""TODO."""

from evorl.mdp.gymnasium.world import Gymnasium as Gymnasium
