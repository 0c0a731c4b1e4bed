"""Networks and what surrounds them.

Here: networks built from a world's `Spec`, action distributions, flat parameters, input statistics, captured and
compiled functions of tensors.
Not here: losses and optimisers (`evorl.ops`), learners (`evorl.rl`).
Start reading: `evorl.nets.policy`, then `evorl.nets.capture`.
"""
