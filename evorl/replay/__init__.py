"""Memory of experience: storage and samplers.

Here: the ring of transitions, in this process or shared by several, with uniform and prioritised sampling; replays of
whole rollouts. Not here: what is learned from a sample, and how many for each transition (`evorl.rl.replay_learner`,
`evorl.rl.rollout_replay`).
Start reading: `evorl.replay.storage` for transitions, `evorl.replay.mixture` for rollouts.
"""
