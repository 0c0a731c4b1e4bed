"""The mathematics: pure functions of tensors and arrays.

Here: returns and advantages, losses, Adam, Pareto ranks, fitness shaping.
Not here: anything with state or configuration (`evorl.rl`, `evorl.ec`, `evorl.nets`).
Start reading: `evorl.ops.returns`.
"""
