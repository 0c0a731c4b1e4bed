"""Memory of experience: storage, samplers and the limiter.

Here: the ring of transitions, uniform sampling, the ratio of samples to inserts.
Not here: what is learned from a sample (`evorl.rl`).
Start reading: `evorl.replay.storage`.
"""
