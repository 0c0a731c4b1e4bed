"""The tables of a report as files: CSV, parquet, Markdown and LaTeX, of the same numbers as its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evorl.analysis import export
from evorl.analysis.comparison import Comparison, comparison_text, comparison_words
from evorl.analysis.content import Content, WorldReport
from evorl.analysis.hardware import hardware_rows
from evorl.analysis.importance import TITLE as IMPORTANCE
from evorl.analysis.jobs import work_rows
from evorl.analysis.latex import to_latex
from evorl.analysis.notes import warnings
from evorl.analysis.opponents import opponent_rows
from evorl.analysis.population import TABLE_ROWS, PopulationLog, individual_rows, sampled_rows
from evorl.analysis.tables import Row, format_rows, group_rows, run_rows, to_csv, to_markdown
from evorl.util.text import printable

GROUPS = "Groups: means over runs"
RUNS = "Runs"
WORK = "Work of the workers"
SHORT = {"end": "comparison", "steps": "comparison_steps", "seconds": "comparison_time"}
"""File names of comparisons, by where the scores were taken."""

Text = Sequence[Mapping[str, str]]


def table_files(content: Content) -> dict[str, bytes]:
    """Return the files by name: ``groups.csv``, ``runs.csv``, ``table.md`` and what else is asked for.

    That is all numbers in long form as CSV, the tables and these numbers as parquet, and the tables in LaTeX.
    """
    parts, choices = content.worlds, content.choices
    wide: dict[str, list[Row]] = {
        "groups": [{"world": part.name} | row for part in parts for row in group_rows(part.groups)],
        "runs": [{"world": part.name} | row for part in parts for row in run_rows(part.groups, part.pending)],
        "comparison": [
            {"world": comparison.world, "at": comparison.scores.at, "limit": _limits(comparison)} | row
            for comparison in content.comparisons
            for row in comparison.rows
        ],
        "population": [
            {"run": str(log.run.directory)} | row
            for part in parts
            for log in part.populations.values()
            if log.table_rows
            for row in individual_rows(log)
        ],
        "work": [
            {"run": str(log.run.directory)} | row
            for part in parts
            for log in part.work.values()
            for row in work_rows(log)
        ],
        "opponents": [
            {"run": str(log.run.directory)} | row
            for part in parts
            for log in part.opponents.values()
            for row in opponent_rows(log)
        ],
        "hardware": hardware_rows(content.runs),
        "importance": [{"world": part.name} | row for part in parts if part.importance for row in part.importance.rows],
    }
    wide = {name: rows for name, rows in wide.items() if rows}
    files = {f"{name}.csv": to_csv(rows, raw=choices.csv_raw) for name, rows in wide.items()}
    files["table.md"] = _markdown(content).encode()
    if choices.csv or choices.parquet:
        long = export.long_tables({part.name: part.runs for part in parts}, content.comparisons)
        if choices.csv:
            files |= {f"{name}.csv": export.to_csv(columns, raw=choices.csv_raw) for name, columns in long.items()}
        every = {**{name: export.by_column(rows) for name, rows in wide.items()}, **long}
        files |= {f"{name}.parquet": export.to_parquet(columns) for name, columns in every.items() if choices.parquet}
    return files | (_latex(content) if choices.latex else {})


def joint_tables(content: Content) -> dict[str, Text]:
    """The tables over all worlds, by heading."""
    return _comparisons(content.joint)


def world_tables(part: WorldReport) -> dict[str, Text]:
    """The tables of groups and runs of a world, by heading."""
    tables = {GROUPS: format_rows(group_rows(part.groups)), **_comparisons(part.comparisons)}
    if part.importance:
        tables[IMPORTANCE] = part.importance.text
    return tables | {RUNS: format_rows(run_rows(part.groups, part.pending))}


def world_words(part: WorldReport) -> dict[str, str]:
    """What the tables of a world show, in words, by heading."""
    return comparison_words(part.comparisons) | ({IMPORTANCE: part.importance.words} if part.importance else {})


def page_notes(content: Content) -> list[str]:
    """Sentences on the report as a whole: what was left out, and what affects how the numbers can be read."""
    several = len(content.worlds) > 1
    own = [warnings(part.groups, part.name if several else "") for part in content.worlds]
    return [*content.notes, *(note for notes in own for note in notes)]


def population_tables(part: WorldReport) -> dict[str, Text]:
    """The tables of the populations of a world, by heading: individuals, and the work of those with jobs."""
    people: dict[str, Text] = {
        population_title(title, log): format_rows(sampled_rows(log))
        for title, log in part.populations.items()
        if log.table_rows
    }
    return people | {f"{title}: {WORK.lower()}": format_rows(work_rows(log)) for title, log in part.work.items()}


def population_title(title: str, log: PopulationLog) -> str:
    """Return the heading of a table of individuals."""
    if len(log.names) > 1:
        return f"{title}: {min(TABLE_ROWS, len(log.table_rows))} of the {len(log.table_rows)} individuals of the front"
    order = "" if log.named is None else f", first the one that is named best, then by {log.ranked_by}"
    return f"{title}: the best individuals{order}"


def _comparisons(compared: Sequence[Comparison]) -> dict[str, Text]:
    return {comparison.title: comparison_text(comparison.rows) for comparison in compared}


def _limits(comparison: Comparison) -> float | None:
    """The steps or seconds of a comparison on one world."""
    return next(iter(comparison.scores.limits.values()), None) if len(comparison.scores.worlds) == 1 else None


def _markdown(content: Content) -> str:
    chapters = {"All worlds": (joint_tables(content), comparison_words(content.joint))} if content.joint else {}
    for part in content.worlds:
        chapters[part.name] = (world_tables(part) | population_tables(part), world_words(part))
    sentences = {part.name: [" ".join(part.headline.sentences)] for part in content.worlds}
    blocks = [*map(printable, page_notes(content))]
    for name, (tables, words) in chapters.items():
        blocks += [printable(f"# {name}"), *map(printable, sentences.get(name, ()))]
        for title, rows in tables.items():
            shown = [words[title]] if title in words else []
            blocks += [*map(printable, [f"## {title}", *shown]), to_markdown(rows).rstrip("\n")]
    return "\n\n".join(blocks) + "\n"


def _latex(content: Content) -> dict[str, bytes]:
    """A file for each table of ``table.md``."""
    files: dict[str, tuple[str, Text]] = {
        f"all_worlds.{SHORT[joint.scores.at]}": (joint.title, comparison_text(joint.rows)) for joint in content.joint
    }
    for part in content.worlds:
        short = {GROUPS: "groups", RUNS: "runs", IMPORTANCE: "importance"}
        short |= {comparison.title: SHORT[comparison.scores.at] for comparison in part.comparisons}
        for title, rows in world_tables(part).items():
            files[part.stem + short[title]] = (f"{part.name}: {title}", rows)
        for number, (title, rows) in enumerate(population_tables(part).items()):
            files[f"{part.stem}population_{number}"] = (f"{part.name}: {title}", rows)
    return {f"{name}.tex": to_latex(rows, title).encode() for name, (title, rows) in files.items()}
