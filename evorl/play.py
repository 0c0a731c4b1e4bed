"""The command with which a person plays against a policy, in a page of the browser.

    python -m evorl.play run=RUN_DIR
    python -m evorl.play run=RUN_DIR side=1 speed=0.5 film=true

It prints an address on this machine, which holds a token. The page shows the keys and what they do, and has a choice of
side, opponent and speed. The game waits while no page is open. Ctrl-C ends it.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["play", *sys.argv[1:]]))

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Literal

from evorl.cli import config
from evorl.jobs.saved_policies import LoadedPolicy, loaded_policy
from evorl.record import run_names
from evorl.util import run_directory
from evorl.util.errors import BadRequest
from evorl.util.text import say
from evorl.util.types import Natural, Positive

if TYPE_CHECKING:
    from evorl.human.game import Film, Games
    from evorl.mdp.core import World
    from evorl.rl.films import Shown

USAGE = "usage: python -m evorl.play run=RUN_DIR [side=1] [checkpoint=best]   (--help tells more)"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The keys of the command line."""

    run: str
    """A run directory, or latest for the one below runs/ that began last."""
    checkpoint: str = "latest"
    """latest or last, best, or a step that the run keeps."""
    individual: Natural | str | None = None
    """For a population: best, or the id of an individual that the checkpoint holds; null is the best."""
    side: Natural = 0
    """The person's side at first; the page changes it."""
    opponent: Literal["policy", "rule"] = "policy"
    """Who plays the other sides at first: the policy, or the world's rule player."""
    speed: Positive = 1.0
    """Of the game at first: 0.5 is half its own."""
    seed: Natural = 0
    """Of the games."""
    film: bool = False
    """A film of each game, into the run directory."""
    trust: tuple[str, ...] = ()
    """Root modules outside evorl that the run's config may import."""


def main(argv: list[str] | None = None) -> int:
    """Run ``evorl.play`` with these arguments and return its exit code."""
    return config.command_line(_command, argv)


def _command(words: Sequence[str]) -> None:
    if not words:
        raise BadRequest(f"no run directory given; {USAGE}")
    play(config.parse_request(Request, words))


def play(request: Request) -> None:
    """Serve the page until Ctrl-C."""
    run_dir = Path(run_names.named(request.run, "run"))
    experiment = config.experiment_of_run(run_dir, request.trust)
    if request.film and not os.access(run_dir, os.W_OK | os.X_OK):
        raise BadRequest(f"{run_dir} cannot be written, where films go", "film")
    with ExitStack() as opened:
        opened.callback(experiment.mdp.close)
        with_sides(experiment.mdp)
        loaded = loaded_policy(experiment, run_dir, request.checkpoint, request.individual)
        if loaded.game is not None:
            opened.callback(loaded.game.close)
        _serve(loaded, loaded.game or experiment.mdp, run_dir, request)


def _serve(loaded: LoadedPolicy, world: World, run_dir: Path, request: Request) -> None:
    from evorl.human.game import Games, check_draws
    from evorl.human.page import GameServer
    from evorl.util.loopback import running

    check_draws(world)
    film = film_writer(run_dir, loaded.step, world) if request.film else None
    games = Games(world, loaded.learner, request.seed, film)
    games.choose(side=request.side, opponent=request.opponent, speed=request.speed)
    failed: list[BaseException] = []

    def in_thread() -> None:
        try:
            games.run()
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=in_thread, daemon=True)
    with running(GameServer(games, f"{run_dir.name}, step {loaded.step:,}")) as server:
        say(f"play at {server.url} (Ctrl-C ends it)")
        thread.start()
        caught = stopped_by_signals(games) if film else []
        try:
            thread.join()
        finally:
            games.stopped.set()
        for number in caught:
            signal.raise_signal(number)
    if failed:
        raise failed[0]


def stopped_by_signals(games: Games) -> list[int]:
    """Let the first SIGINT or SIGTERM end the games, and with them their last film; return the list that it enters.

    Another one leaves at once.
    """
    caught: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        games.stopped.set()
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    return caught


def with_sides(world: World) -> None:
    """Raise `BadRequest` for a world in which a person cannot take a side."""
    try:
        world.all_sides()
    except BadRequest as error:
        raise error.under("run") from None


def film_writer(run_dir: Path, step: int, world: World) -> Film:
    """What writes the film of a game: ``videos/person-STEP-GAME``. Numbers go on after those of earlier sessions."""
    from evorl.human.game import STEP_S
    from evorl.record.video import write_video
    from evorl.rl.films import at_rate, fps_of

    written = (re.match(rf"person-{step}-(\d+)\.", path.name) for path in (run_dir / "videos").glob("person-*"))
    first = max((int(found[1]) + 1 for found in written if found), default=0)

    def write(shown: Iterator[Shown], game: int) -> None:
        fps = fps_of(world.seconds_per_step or STEP_S)
        frames = at_rate(shown, fps)
        if (begin := next(frames, None)) is None:  # another game was chosen before this one began
            return
        run_directory.make_folder(run_dir, "videos")
        target = write_video(run_dir / "videos" / f"person-{step}-{first + game}", chain([begin], frames), fps)
        say(f"video: {target}")

    return write
