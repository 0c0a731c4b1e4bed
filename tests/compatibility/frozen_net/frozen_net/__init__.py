"""FrozenNet: a plugin of evorl."""
