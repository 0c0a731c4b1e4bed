"""Google Research Football, in two builds of its engine.

`world` is the config. EnvPool's build plays in threads: `games` are the games of one slot, `arena` runs those of many
slots in lockstep. The build from source plays in processes: `engine` is what runs in one, `process` starts and keeps
them, `frame` is what they say and what a side sees of it, `battle` is one game with a coroutine for each side.
"""

from evorl.mdp.football.world import Football as Football
