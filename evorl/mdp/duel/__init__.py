"""A real-time fight of two asymmetric characters, knight and archer, simulated tick by tick.

Start with `evorl.mdp.duel.rules`, the fight itself. `characters` holds every number of it as config, `world` runs it as
battles, `observation` is the view of one side, `rule_player` plays the side that the learner does not, and `drawing`
draws the fight.
"""

from evorl.mdp.duel.world import Duel as Duel
