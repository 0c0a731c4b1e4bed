"""TODO."""

from evorl.mdp.atari.world import Atari as Atari
