"""Everything that a run writes into its run directory while it goes.

Here: metrics, checkpoints, failures, provenance, videos, the terminal, and the TensorBoard and W&B sinks.
Not here: reading finished runs, statistics, figures and reports (`evorl.analysis`).
Start reading: `evorl.record.core` (the recorder), then `evorl.record.checkpoint`.
"""
