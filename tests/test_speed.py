"""The parts of the speed programs that need no peers: a run of them all takes an idle machine and 20 minutes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "speed"))


def test_what_is_measured_composes() -> None:
    import ours
    import ppo

    *theirs, our_own = ppo.cases()
    rl: Any = [ours.experiment(case.words.split()).rl for case in theirs]
    assert [(one.slots, one.horizon, one.passes, one.minibatch) for one in rl] == [(8, 2048, 10, 64)] * 3
    own: Any = ours.experiment(our_own.words.split()).rl
    same = our_own.peers["SB3, our settings"].settings
    assert (same["envs"], same["ppo"]["n_steps"], same["ppo"]["batch_size"], same["ppo"]["n_epochs"]) == (
        own.members * own.slots, own.horizon, own.minibatch, own.passes,
    )  # fmt: skip


def test_the_page_of_the_main_job_is_what_its_program_writes_of_its_figures() -> None:
    import pong

    place = Path(pong.__file__).parent / "results"
    page = "\n".join(pong.result(json.loads((place / "pong.json").read_text())["runs"]))
    assert (place / "pong.md").read_text().startswith(page)
    assert [pong.SHOWN[key][2] for key in ("first_line", "first_metric")] == ["< 1", "< 2"]


@pytest.mark.slow
def test_whole_trainings_on_atari_have_the_sizes_of_their_peers() -> None:
    import atari_learning
    import ours

    found: dict[str, set[Any]] = {}
    for name, contestant in atari_learning.CONTESTANTS.items():
        for make in contestant.settings.values():
            if name.startswith("evorl"):
                whole: Any = ours.experiment(make.args[2:])
                rl = whole.rl
                games = (whole.mdp.size, rl.members * rl.slots, rl.horizon, rl.asynchronous)
                found.setdefault(name, set()).add(games)
    assert found == {
        "evorl, PPO": {(84, 8, 128, False)},
        "evorl, V-trace": {(84, 16, 32, True)},
        "evorl, V-trace with half replay": {(84, 16, 32, True)},
    }
    waiting: Any = ours.experiment(atari_learning.WAITING)
    assert waiting.mdp.size == 42


@pytest.mark.parametrize(("kind", "number"), [("vector", 1), ("random", 0), ("network", 0)])
def test_everybody_who_plays_atari_counts_his_steps(kind: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import atari

    monkeypatch.setattr(atari, "GAMES", 2)
    assert atari.WORK[kind](number)() == 2 * atari.STEPS


def test_contestants_take_turns_and_every_other_round_turns_back() -> None:
    from common import alternate

    asked: list[tuple[str, int]] = []
    contestants = {name: lambda number, name=name: asked.append((name, number)) or number for name in "ab"}
    assert alternate(contestants, range(3)) == {"a": [0, 1, 2], "b": [0, 1, 2]}
    assert asked == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]


def test_rows_come_while_the_run_goes_on_and_to_its_last_one(tmp_path: Path) -> None:
    from solve import rows

    path, said = tmp_path / "metrics.jsonl", 3
    program = (
        "import sys; file = open(sys.argv[1], 'a', buffering=1)\n"
        "for step in map(int, sys.stdin): file.write('{\"st'); file.flush(); file.write(f'ep\": {step}}}\\n')"
    )
    with subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for step in range(said):
            process.stdin.write(f"{step}\n".encode())
            process.stdin.flush()
            if step == 0:
                found = rows(path, process)
                assert next(found) == {"step": 0}
        process.stdin.close()
        assert [*found] == [{"step": 1}, {"step": 2}]
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1, 2]


def test_the_last_line_of_a_program_is_its_answer_and_it_does_not_outlive_who_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.speed import common

    says, fails, sleeps = (tmp_path / f"{name}.py" for name in ("says", "fails", "sleeps"))
    says.write_text("import sys; print('one'); print('[2, ' + sys.argv[1] + ']')")
    fails.write_text("raise SystemExit(3)")
    sleeps.write_text("import time; time.sleep(600)")
    python = Path(sys.executable)
    assert common.answer(python, str(says), "3") == [2, 3]
    with pytest.raises(SystemExit, match="ended with 3"):
        common.answer(python, str(fails))

    started, start = [], common.start_bound

    def interrupted(*words: Any) -> Any:
        started.append(start(*words))
        monkeypatch.setattr(started[-1], "communicate", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        return started[-1]

    monkeypatch.setattr(common, "start_bound", interrupted)
    with pytest.raises(KeyboardInterrupt):
        common.answer(python, str(sleeps))
    assert started[0].returncode == -signal.SIGKILL


def test_without_the_peers_a_benchmark_ends_with_the_command_that_brings_them(tmp_path: Path) -> None:
    from benchmarks.speed import common

    with pytest.raises(SystemExit, match=r"there is no .*: make peers"):
        common.start(tmp_path / "python", "peer.py")


def test_a_ray_of_a_benchmark_asks_for_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.speed import common

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    says = tmp_path / "says.py"
    says.write_text("import json, os; print(json.dumps(os.environ['RAY_AUTH_MODE']))")
    assert common.answer(Path(sys.executable), str(says)) == "token"
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600
