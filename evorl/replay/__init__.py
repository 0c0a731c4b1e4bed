"""Memory of experience: storage and samplers.

Here: the ring of transitions, in this process or shared by several; replays of whole rollouts; the samplers that choose
from both. Not here: what is learned from a sample, and how many for each transition (`evorl.rl.replay_learner`,
`evorl.rl.rollout_replay`).
Start reading: `evorl.replay.storage` for transitions, `evorl.replay.mixture` for rollouts, `evorl.replay.samplers.core`
for samplers.
"""
