"""Programs that measure. `evorl.reproduce` rebuilds the tables that some of them declare."""
