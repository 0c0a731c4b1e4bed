"""The command line: from KEY=VALUE words to a checked, typed experiment.

Here: composing ``conf/`` with Hydra, refusing unknown choices and keys (`evorl.cli.refusals`), help texts.
Not here: what follows (`evorl.jobs`), and the commands (`evorl.run`, `evorl.evaluate`, `evorl.report`).
Start reading: `evorl.cli.config`.
"""
