"""TODO."""

from evorl.mdp.marvin.world import Marvin as Marvin
