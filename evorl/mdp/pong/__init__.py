"""TODO."""

from evorl.mdp.pong.world import Pong as Pong
