"""Two-sided vector Pong.

Start with `evorl.mdp.pong.rules`, the game in arrays. `match` adds players and opponents, `world` is the config and the
lockstep arena, `battle` runs one game as coroutines with the same results, `drawing` draws it.
Atari's Pong from images is not here but in `evorl.mdp.atari`.
"""

from evorl.mdp.pong.world import Pong as Pong
