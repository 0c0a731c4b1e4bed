"""Memory of experience: storage and samplers.

Here: the ring of transitions, in this process or shared by several, and uniform and prioritised sampling.
Not here: what is learned from a sample, and how many for each transition (`evorl.rl.replay_learner`).
Start reading: `evorl.replay.storage`.
"""
