"""PettingZoo's environments of several agents, in turns (AEC) or all at once (parallel).

Start with `evorl.mdp.pettingzoo.world`, the config. `registry` finds and makes an environment, or says why it cannot;
`form` is what its agents observe and do; `games` are its episodes.
"""

from evorl.mdp.pettingzoo.world import PettingZoo as PettingZoo
