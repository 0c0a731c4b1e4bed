"""The command line: from KEY=VALUE words to a checked, typed experiment.

Here: composing ``conf/`` with Hydra, checking keys and values, help texts, error messages.
Not here: what a command then does (`evorl.jobs`), and the doors themselves (`evorl.run` and its neighbours).
Start reading: `evorl.cli.config`.
"""
