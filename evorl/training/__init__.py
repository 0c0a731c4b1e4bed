"""One run: the typed experiment, the loop of one learner, and the session that every run shares.

Here: collect, update and evaluate one learner; budget, checkpoints, signals and the result of any run.
Not here: populations (`evorl.population`), algorithms (`evorl.rl`), run directories (`evorl.jobs`).
Start reading: `evorl.training.train`.
"""
