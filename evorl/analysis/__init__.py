"""What is read back from run directories: statistics, tables, figures and the report.

Here: reading runs and sweeps, grouping them, intervals, learning curves, fronts, lineages, the HTML page.
Not here: what a run writes while it goes (`evorl.record`).
Start reading: `evorl.analysis.report`.
"""
