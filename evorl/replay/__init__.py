"""Memory of experience: storage and samplers.

Here: the ring of transitions, in this process or shared by several, and uniform sampling.
Not here: what is learned from a sample, and how many for each transition (`evorl.rl.off_policy`).
Start reading: `evorl.replay.storage`.
"""
