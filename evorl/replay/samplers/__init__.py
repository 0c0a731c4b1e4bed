"""Samplers: the rules by which a learner chooses what to replay, of transitions, sequences or rollouts.

Here: one file for each rule, the table of them all (`registry`), and the check that each passes (`conformance`).
A rule sees numbers, ages, features and priorities, never what is in an item.
Not here: where items are kept (`evorl.replay.storage`, `evorl.replay.part`), what is learned (`evorl.rl`).
Start reading: `evorl.replay.samplers.core`, then `uniform` as the example to copy.
"""
