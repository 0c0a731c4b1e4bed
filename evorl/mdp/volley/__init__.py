"""Slime volleyball, for two sides.

Start with `evorl.mdp.volley.rules`, the game in arrays. `baseline` is its published player, `arena` runs many games in
lockstep, `world` is the config, `drawing` draws a game.
"""

from evorl.mdp.volley.world import Volley as Volley
