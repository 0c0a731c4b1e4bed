"""The world of gymnasium environments: registered ids and environment classes of your own.

Start with `evorl.mdp.gymnasium.world`, the config. `registry` looks up ids and classes. Three engines play them:
`classic_control` (NumPy simulators), `env_per_slot` (one environment per slot), `vector_env` (one environment with many
rows; with one generator for all of them: `shared_generator`). `spaces` converts observations and actions, `camera`
draws, `snapshot` and `action_log` save states.
"""

from evorl.mdp.gymnasium.world import Gymnasium as Gymnasium
