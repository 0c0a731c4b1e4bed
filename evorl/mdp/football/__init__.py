"""Google Research Football, from pictures, in EnvPool's threads.

`world` is the config, `games` the games of one slot, `arena` runs those of many slots in lockstep.
"""

from evorl.mdp.football.world import Football as Football
