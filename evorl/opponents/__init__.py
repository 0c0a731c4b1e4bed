"""Training against opponents: past selves of the learner, in worlds with two or more sides.

Start with `evorl.opponents.core`, the config. `pool` keeps snapshots and the games against each of them, `arena` lets
opponents decide for the other sides, `sampler` brings both into a training run. Guide: docs/opponents.md.
"""
