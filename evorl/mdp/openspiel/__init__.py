"""Games of OpenSpiel (Lanctot et al. 2019): in turns or simultaneous, with chance and hidden information.

Start with `evorl.mdp.openspiel.world`, the config. `loading` loads a game, or says why it cannot be played; `game` is
one episode of it; `equilibrium` measures how far a policy is from a Nash equilibrium.
"""

from evorl.mdp.openspiel.world import OpenSpiel as OpenSpiel
