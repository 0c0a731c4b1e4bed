"""Parts of a replay of rollouts: each holds rollouts, and has a rule by which it keeps and chooses them.

Here: one file for each rule. A rule sees numbers, ages, features and priorities, never what is in a rollout.
Not here: the shares of the parts (`evorl.replay.mixture`), what is learned (`evorl.rl.vtrace`, `evorl.rl.impact`).
Start reading: `evorl.replay.parts.core`.
"""
