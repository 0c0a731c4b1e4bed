"""What elite_buffer_vtrace publishes."""

from __future__ import annotations

from evorl.reproduction.table import Paper, Unmeasured

PAPER = Paper(
    title="Elite replay",
    source="The platform elite_buffer_vtrace (its README; there is no paper), an IMPALA with V-trace and replay.",
    tables=("elite", "correction", "dqn"),
    unmeasured=(
        Unmeasured(
            "Atari-57 and DMLab-30 of the paper that it follows",
            "IMPALA's shallow network has 466 % of human scores on 57 games (mean), the deep one 958 %",
            "Espeholt et al. 2018",
            "the platform shows two games; all of them for 200M frames take a cluster",
        ),
    ),
)
