"""Readers of run directories, and the statistics, tables, figures and HTML page of a report.

Here: reading runs and sweeps, grouping them, intervals, learning curves, Pareto fronts, lineages.
Not here: what a run writes while it goes (`evorl.record`). Nothing here changes a run directory;
only `evorl.analysis.sweeps` writes, the index of a sweep.
Start reading: `evorl.analysis.report`.
"""
