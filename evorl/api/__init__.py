"""evorl from Python: train, load, act, evaluate and plot. The package `evorl` offers the names (docs/python.md)."""
