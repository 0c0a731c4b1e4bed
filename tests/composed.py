"""A composition. Commands that are forked after it have its caches: of Hydra's plugins, grammar and files."""

from __future__ import annotations

from evorl.cli import config

config.experiment_of_words(["mdp=cartpole", "rl=ppo"])
