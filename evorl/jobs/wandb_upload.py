"""``wandb=report`` of ``evorl.report``: send runs and their report to W&B."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evorl.analysis.reproduced import read_result
from evorl.analysis.runs import RunRecord
from evorl.cli import config
from evorl.util import run_directory
from evorl.util.errors import BadRequest
from evorl.util.text import printable, say


@dataclass(frozen=True, kw_only=True)
class Upload:
    """What the command line says about W&B."""

    project: str | None
    results: Sequence[Path]
    """Files of reproduced tables."""


def upload_of(named: Sequence[str], wandb: str | None, project: str | None) -> tuple[list[str], Upload | None]:
    """Return the words that are no results of reproduced tables, and what is asked of W&B; None if nothing is.

    Raises `BadRequest`.
    """
    results = [Path(word) for word in named if word.endswith(".json") and Path(word).is_file()]
    if wandb is None:
        if project is not None:
            raise BadRequest("goes with wandb=report", "project")
        for file in results:
            raise BadRequest(f"{file} is no run directory; results of reproduced tables go with wandb=report")
        return list(named), None
    if project == "":
        raise BadRequest("needs a name", "project")
    for file in results:
        read_result(file)
    return [word for word in named if Path(word) not in results], Upload(project=project, results=results)


def send(upload: Upload, runs: Sequence[RunRecord], content: Mapping[str, bytes], out: Path) -> None:
    """Write the report as JSON, then send what the server lacks of the runs, and the report.

    Prints what happens. Raises SystemExit if the server was reached and something did not arrive, also because it was
    out of reach later. The page's address stays in the file until the page is sent again.
    """
    from evorl.analysis.wandb_document import document
    from evorl.record import wandb_report
    from evorl.record.wandb import NoServer, NotSent

    arrived, failed = 0, list[str]()
    made = document(runs, upload.results, content, out, upload.project)
    wandb_report.write(made, out)
    say(out / wandb_report.FILE_NAME)
    try:
        _check_mode()
        for run in runs:
            reason = _upload(run)
            arrived += run.state != "running" and not reason
            failed += [reason] if reason else []
        wandb_report.publish(made, out)
    except NoServer as error:
        if not arrived and not failed:
            notice = f"evorl: no W&B server ({error}); the same command sends the report once there is one"
            say(notice, sys.stderr)
            return
        failed.append(f"the server is out of reach ({error})")
    except NotSent as error:
        failed.append(str(error))
    else:
        say(run_directory.read_json(out, wandb_report.FILE_NAME)["url"])
    if failed:
        lines = "".join(f"\n  {printable(reason)}" for reason in failed)
        say(f"evorl: W&B did not get everything; the same command goes on{lines}", sys.stderr)
        raise SystemExit(1)


def _check_mode() -> None:
    from evorl.record.wandb import NoServer

    if (mode := os.environ.get("WANDB_MODE", "online")) != "online":
        raise NoServer(f"WANDB_MODE={mode}")


def _upload(run: RunRecord) -> str:
    """Send what the server lacks of a run; return why it did not get everything. Raises `NoServer`.

    A run that is going on sends its rows itself.
    """
    from evorl.analysis.wandb_document import DEFAULT_PROJECT
    from evorl.record.wandb import NotSent, upload

    if run.state == "running":
        return ""
    try:
        with config.config_of(run.directory, "wandb"):
            whole = config.read_run_config(run.directory, "wandb")
            record = {"project": DEFAULT_PROJECT, **(whole.get("record") or {})}
            upload(run.directory, record, whole, ok=run.state == "finished")
    except BadRequest as error:  # a damaged run does not stop the others
        return str(error)
    except NotSent as error:
        return f"{run.directory}: {error}"
    return ""
