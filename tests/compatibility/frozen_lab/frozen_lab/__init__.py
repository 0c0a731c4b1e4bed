"""FrozenLab: a plugin of evorl."""
