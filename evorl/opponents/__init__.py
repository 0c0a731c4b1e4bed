"""Training against opponents in worlds with two or more sides: past selves, rule players, policies of other runs.

Start with `evorl.opponents.core`, the config. `pool` keeps opponents and the games against each of them, `arena` lets
them decide for the other sides, by `deciders`; `sampler` brings all into a training run. `play` plays matches of pairs
of policies that do not learn. Guide: docs/opponents.md.
"""
