"""Evolutionary computation: evolvers behind ask and tell.

Here: one file per algorithm (its keys in a class of its name, its evolver in `Strategy`), individuals and
evaluations, the space of genes and weights, genetic operators.
Not here: worlds, learners and the loop that evaluates individuals (`evorl.population`).
Start reading: `evorl.ec.core`, then `evorl.ec.openai_es`.
"""
