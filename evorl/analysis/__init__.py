"""Readers of run directories, and the statistics, tables, figures and HTML page of a report.

Here: reading runs and sweeps, grouping and comparing them, intervals, learning curves, Pareto fronts, lineages.
`found` is what the command line names, `content` what is computed of it, `report_*` its tables, figures and page;
``web/`` is what the page runs in a browser.
Not here: what a run writes while it goes (`evorl.record`). Nothing here changes a run directory;
only `evorl.analysis.sweeps` writes, the index of a sweep.
Start reading: `evorl.analysis.report`.
"""
