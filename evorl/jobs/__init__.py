"""Whole runs: one run in its directory, a sweep over many, a search that proposes them.

Here: starting and resuming a run, Hydra sweeps, searches in which an evolver proposes the jobs.
Not here: what happens inside a run (`evorl.training`, `evorl.population`).
Start reading: `evorl.jobs.job`.
"""
