"""W&B reports: a document of texts, tables, pictures and the curves of runs, as a page on the W&B server.

`build` makes the page with the package wandb-workspaces, which checks it against its own schema. It needs no server.
`publish` sends it from a child process, since the library may block (see `evorl.record.wandb`). Pictures become media
of a run of job type ``report``. That run and the page have one name, kept beside the report, so both are replaced when
the report is written again, and there is one of each however often that was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec

from evorl.record.layout import charts_of
from evorl.record.wandb import LOG, NO_SERVER, NoServer, NotSent, end_after, film, last_line, quiet_settings, run_id
from evorl.util import run_directory

FILE_NAME = "wandb_report.json"
"""The report as JSON: its address, and the page as the server keeps it."""
TIMEOUT_S = 120  # of the child
COLUMNS, WIDTH, HEIGHT = 3, 8, 6  # charts in a row; W&B's grid has 24 columns


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A heading with a text in Markdown and pictures below it."""

    title: str
    text: str = ""
    level: Literal[1, 2] = 1
    pictures: tuple[str, ...] = ()
    """Names of `Document.pictures`."""


class RunSet(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that are drawn as one line."""

    label: str
    project: str
    runs: tuple[str, ...]
    """W&B ids."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a report."""

    title: str
    description: str
    project: str
    before: tuple[Part, ...] = ()
    """Above the curves."""
    sets: tuple[RunSet, ...] = ()
    metrics: tuple[str, ...] = ()
    """What the curves show."""
    after: tuple[Part, ...] = ()
    """Below the curves."""
    pictures: dict[str, str] = {}
    """Files by name."""


def build(document: Document, entity: str, own_run: str) -> Any:
    """Return the report as an object of wandb-workspaces. ``own_run``: W&B id of the run with the pictures.

    With an empty ``entity`` it can be made without a server; its sets of runs then name no project.
    """
    wr = library()
    own = RunSet(label="report", project=document.project, runs=(own_run,))
    number = count()
    blocks: list[Any] = [wr.TableOfContents()]
    for part in document.before:
        blocks += _part(part, own, entity, number)
    curves = charts_of(document.metrics) if document.sets else {}
    if curves:
        blocks.append(wr.H1(text="Curves"))
    for section, shown in curves.items():
        panels = [_chart(title, names, document.sets, place) for place, (title, names) in enumerate(shown.items())]
        blocks += [wr.H2(text=section), _grid(document.sets, entity, panels, number)]
    for part in document.after:
        blocks += _part(part, own, entity, number)
    return wr.Report(
        project=document.project, entity=entity, title=document.title[:128], description=document.description,
        blocks=blocks, width="fluid",
    )  # fmt: skip


def library() -> ModuleType:
    """Return the classes of wandb-workspaces. Its way of checking values is one that pydantic deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from wandb_workspaces.reports.v2 import interface

        return interface


def _part(part: Part, own: RunSet, entity: str, number: Iterator[int]) -> Iterator[Any]:
    wr = library()
    yield wr.H1(text=part.title) if part.level == 1 else wr.H2(text=part.title)
    if part.text:
        yield wr.MarkdownBlock(text=part.text)
    if part.pictures:
        layouts = [wr.Layout(x=0, y=2 * HEIGHT * n, w=COLUMNS * WIDTH, h=2 * HEIGHT) for n in range(len(part.pictures))]
        browsers = [
            wr.MediaBrowser(title=name, num_columns=1, media_keys=[_media(name)], layout=layout)
            for name, layout in zip(part.pictures, layouts, strict=True)
        ]
        yield _grid([own], entity, browsers, number, hide=True)


def _grid(
    sets: Sequence[RunSet], entity: str, panels: Sequence[Any], number: Iterator[int], *, hide: bool = False
) -> Any:
    wr = library()
    shown = []
    for run_set in sets:
        runs = ", ".join(f"'{run}'" for run in run_set.runs)
        made = wr.Runset(
            entity=entity, project=run_set.project, name=run_set.label, filters=f"Metric('ID') in [{runs}]"
        )
        made._id = f"set{next(number)}"  # the library's own are random: equal reports are equal files
        shown.append(made)
    for panel in panels:
        panel._id = f"panel{next(number)}"
    return wr.PanelGrid(runsets=shown, panels=[*panels], hide_run_sets=hide)


def _chart(title: str, names: Sequence[str], sets: Sequence[RunSet], place: int) -> Any:
    """Return a chart over environment steps; sets of several runs are drawn as their mean and range."""
    wr = library()
    several = any(len(run_set.runs) > 1 for run_set in sets)
    grouping: dict[str, Any] = {}
    if several:
        grouping = {"groupby": "JobType", "groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    return wr.LinePlot(
        title=title, x="step", y=[*names], title_x="environment steps", **grouping,
        layout=wr.Layout(x=WIDTH * (place % COLUMNS), y=HEIGHT * (place // COLUMNS), w=WIDTH, h=HEIGHT),
    )  # fmt: skip


def as_json(report: Any, name: str, **address: str) -> dict[str, Any]:
    """Return what the server keeps of a report, with its schema's names; ``address``: id and url, once it has them."""
    model = report._to_model()
    model.name = name
    document: dict[str, Any] = json.loads(model.model_dump_json(by_alias=True, exclude_none=True))
    return document | address


# ------------------------------------------------------------------ sending


def write(document: Document, directory: Path) -> None:
    """Write the report into a directory as JSON, without a server. An earlier one's id and address there stay."""
    name = run_id(directory)
    earlier: dict[str, str] = {}
    with suppress(OSError, ValueError):
        earlier = run_directory.read_json(directory, FILE_NAME)
    address = {key: earlier[key] for key in ("id", "url") if key in earlier}
    run_directory.write_json(directory, FILE_NAME, as_json(build(document, "", name), name, **address))


def publish(document: Document, directory: Path) -> None:
    """Send the report to the server, and keep in the directory what was sent. The projects of its runs must exist.

    Raises `NoServer`, and `NotSent` if the server did not take all of it. Can be repeated.
    """
    if run_directory.exists_at_all(directory, LOG):
        run_directory.unlink(directory, LOG)
    with run_directory.opened(directory, LOG, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "evorl.record.wandb_report", str(directory.resolve())],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"},
        )
    try:
        child.communicate(msgspec.json.encode(document))
    finally:
        child.kill()
    if child.returncode == -signal.SIGALRM:
        raise NotSent(f"it was not done within {TIMEOUT_S} s")
    if child.returncode:
        raise (NoServer if child.returncode == NO_SERVER else NotSent)(last_line(directory))


def main(directory: Path) -> int:
    """Send the pictures and the page of a document (JSON on stdin), and return the exit code."""
    import wandb

    threading.Thread(target=end_after, args=(TIMEOUT_S,), daemon=True).start()
    document = msgspec.json.decode(sys.stdin.buffer.read(), type=Document)
    name = run_id(directory)
    try:
        run = wandb.init(
            mode="online", project=document.project, id=name, resume="allow", name=document.title,
            job_type="report", dir=str(directory), settings=quiet_settings(),
        )  # fmt: skip
    except Exception as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return NO_SERVER
    _send_pictures(run, document.pictures)
    report = build(document, run.entity, name)
    number = _save(report, name)
    run.finish()
    report.id = number
    run_directory.write_json(directory, FILE_NAME, as_json(report, name, url=report.url))
    return 0


def _send_pictures(run: Any, pictures: Mapping[str, str]) -> None:
    """Log the pictures as one row, unless the newest row has the same."""
    digest = hashlib.sha256()
    for name, file in sorted(pictures.items()):
        digest.update(name.encode() + hashlib.sha256(Path(file).read_bytes()).digest())
    if pictures and run.summary.get("pictures") != digest.hexdigest():
        run.log(
            {
                "pictures": digest.hexdigest(),
                **{_media(name): _medium(Path(file)) for name, file in pictures.items()},
            }
        )


def _medium(file: Path) -> Any:
    import wandb

    return film(file) if file.suffix in (".mp4", ".gif") else wandb.Image(str(file))


def _media(name: str) -> str:
    return f"report/{name}"


def _save(report: Any, name: str) -> str:
    """Save the page, in place of an earlier one of this name; return its id on the server.

    An answer may be lost on its way, and the library then asks again, so there may be two: all but the first go.
    """
    import wandb
    from wandb_workspaces._graphql import execute_graphql

    gql = library().gql
    api = wandb.Api()
    model = report._to_model()

    def saved() -> list[str]:
        pages = wandb.Api().reports(f"{report.entity}/{report.project}", per_page=100)
        return [page.id for page in pages if page.name == name]

    known = saved()
    execute_graphql(
        api,
        gql.upsert_view,
        {
            "id": known[0] if known else None, "name": name, "type": "runs",
            "entityName": model.project.entity_name, "projectName": model.project.name,
            "displayName": model.display_name, "description": model.description,
            "spec": model.spec.model_dump_json(by_alias=True, exclude_none=True),
        },
    )  # fmt: skip
    first, *others = saved()
    for other in others:
        execute_graphql(api, gql.delete_view, {"id": other, "deleteDrafts": True})
    return first


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
