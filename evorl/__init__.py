"""evorl: an experiment suite for evolutionary reinforcement learning."""

__version__ = "0.1.0"
