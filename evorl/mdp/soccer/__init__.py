"""Soccer in the plane, n against n.

Start with `evorl.mdp.soccer.rules`, the game in arrays of NumPy or torch. `players` turns actions into commands and
states into observations, `rule_player` has the players of three strengths, `arena` runs many games in lockstep, `world`
is the config, `parameters` its numbers, `keys` says how people play, `drawing` draws a game.
"""

from evorl.mdp.soccer.world import Soccer as Soccer
