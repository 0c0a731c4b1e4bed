"""The W&B report of runs and of reproduced tables, made of what their page and their files contain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evorl.analysis.groups import group_runs, runs_by_world
from evorl.analysis.notes import count
from evorl.analysis.reproduced import Content, claim_and_measured, how_measured, read_result
from evorl.analysis.runs import RunRecord
from evorl.analysis.sweeps import short_names
from evorl.record.wandb import films_of, run_id
from evorl.record.wandb_report import Document, Part, RunSet

DEFAULT_PROJECT = "evorl"


def document(
    runs: Sequence[RunRecord], results: Sequence[Path], content: Mapping[str, bytes], out: Path, project: str | None
) -> Document:
    """Return the report of runs and of the files of reproduced tables.

    ``content``: the files of the runs' report in the directory ``out``; ``project``: of W&B, None for that of the runs.
    Raises `BadRequest` for a file that is no result.
    """
    tables = [(file, read_result(file)) for file in results]
    pictures: dict[str, str] = {}
    before = [part for file, table in tables for part in _parts_of_table(file, table, pictures)]
    drawn = [name.removesuffix(".png") for name in content if name.endswith(".png")]
    pictures |= {name: str((out / f"{name}.png").absolute()) for name in drawn}
    films = dict(_films(runs))
    after = [Part(title="Pictures", pictures=tuple(drawn))] if drawn else []
    after += [Part(title="Films", pictures=tuple(films))] if films else []
    if "table.md" in content:
        after.append(Part(title="Tables", text=content["table.md"].decode()))
    titles = [table["title"] for _, table in tables] or [f"evorl: {', '.join(runs_by_world(runs))}"]
    return Document(
        title="; ".join(titles),
        description=_description(runs, [table for _, table in tables]),
        project=project or next(map(_project, runs), DEFAULT_PROJECT),
        before=tuple(before),
        sets=tuple(_sets(runs)),
        metrics=tuple(sorted({name for run in runs for name in run.series})),
        after=(
            *after,
            *(Part(title=f"How it was measured: {result['title']}", text=how_measured(result)) for _, result in tables),
        ),
        pictures=pictures | films,
    )


def _parts_of_table(file: Path, table: Content, pictures: dict[str, str]) -> Iterator[Part]:
    """Yield claim and measurement, and each figure with its caption; add the figures to ``pictures``."""
    yield Part(title=table["title"], text=claim_and_measured(table))
    for name, caption in table["figures"].items():
        picture = file.with_name(f"{name}.png")
        if picture.is_file():
            key = f"{file.parent.parent.name}-{name}"
            pictures[key] = str(picture.absolute())
            yield Part(title=caption, level=2, pictures=(key,))


def _sets(runs: Sequence[RunRecord]) -> Iterator[RunSet]:
    """Yield the runs of each group, per project of W&B."""
    worlds = runs_by_world(runs)
    for world, several in worlds.items():
        for group in group_runs(several):
            label = f"{world}: {group.label}" if len(worlds) > 1 and group.label != world else group.label
            projects = dict.fromkeys(map(_project, group.runs))
            for project in projects:
                ids = tuple(run_id(run.directory) for run in group.runs if _project(run) == project)
                yield RunSet(label=f"{label} (n={len(ids)})", project=project, runs=ids)


def _films(runs: Sequence[RunRecord]) -> Iterator[tuple[str, str]]:
    names = short_names(runs)[1] if runs else {}
    for run in runs:
        for file in films_of(run.directory):
            yield f"film {names[run.directory]} {file.stem}", str(file.absolute())


def _project(run: RunRecord) -> str:
    return str(run.config.get("record.project") or DEFAULT_PROJECT)


def _description(runs: Sequence[RunRecord], tables: Sequence[Content]) -> str:
    facts = [count(len(tables), "table")] if tables else []
    return ", ".join([*facts, *([count(len(runs), "run")] if runs else [])])
