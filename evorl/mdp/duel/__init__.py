"""A real-time fight of two asymmetric characters, simulated tick by tick."""

from evorl.mdp.duel.world import Duel as Duel
