"""Memory of experience: storage and samplers.

Here: the ring of transitions, in this process or shared by several, and uniform sampling; replays of whole rollouts.
Not here: what is learned from a sample, and how many for each transition (`evorl.rl.off_policy`, `.rollout_replay`).
Start reading: `evorl.replay.storage` for transitions, `evorl.replay.mixture` for rollouts.
"""
