"""What is refused of games in other programs, and in which words."""

from __future__ import annotations

import shlex
import socket
import struct
import sys
import time
from contextlib import closing
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from harness import experiment_of
from remote_games import EPISODES, FAULTY, TAG, Records, opened

from evorl.cluster.processes import Processes
from evorl.mdp.core import Box
from evorl.mdp.duel import Duel
from evorl.mdp.forms import Mismatch
from evorl.mdp.random_play import random_action
from evorl.mdp.remote import Remote
from evorl.mdp.remote.messages import Ask, Nonsense, Unplayable, read, read_hello
from evorl.mdp.remote.offer import Offer
from evorl.mdp.remote.process import CLIENTS
from evorl.mdp.remote.server import alike
from evorl.nets.distributions import to_world
from evorl.training.train import new_run
from evorl.util import command
from evorl.util.errors import BadRequest


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "command: a command that starts the game is needed, or mdp.listen"),
        ({"command": "no-such-game --fast"}, "command: there is no program no-such-game here"),
        ({"command": "{python} tag.py {prot}"}, "command: {prot} is not filled in; did you mean port?"),
        ({"command": "{python} -u nowhere/tag.py"}, "command: there is no file nowhere/tag.py here"),
        ({"command": "{python} {clients}/python/gone.py"}, "/python/gone.py here"),
        (
            {"command": f"{Path(__file__)} fast"},
            "test_remote_requests.py cannot be executed; name what runs it, as in {py",
        ),
        ({"command": "'"}, 'command: "\'" is no command: No closing quotation'),
        ({"command": " "}, "command: is empty"),
        ({"listen": "5005"}, "listen: 5005 is no HOST:PORT"),
        ({"listen": "tcp:a:7"}, "listen: tcp:a:7 is no HOST:PORT"),
        ({"listen": "0.0.0.0:5005"}, "can be reached from other machines: set EVORL_TOKEN"),
        ({"listen": "0.0.0.0:5005", "protocol": "godot_rl"}, "its protocol has no token; use an SSH tunnel"),
        ({"listen": "unix:" + "x" * 200}, "the path of a Unix socket has 1 to 100 bytes"),
        ({"command": TAG, "side": "catcher"}, "side: catcher contradicts opponent=self"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Remote(**keys).ready()
    assert message in str(caught.value)


def test_a_game_that_ends_at_once_has_not_connected() -> None:
    with (
        closing(Remote(command="true")) as world,
        pytest.raises(
            Unplayable, match=r"^mdp.command: game 1 \(process \d+\) has not connected: it ended with exit code 0"
        ),
    ):
        world.arena(2, EPISODES)


@pytest.mark.parametrize(
    "line",
    [
        *("env game.exe", "{python} {seed}.py", "{python} -m game", "{python} -c 'x'"),
        *("bash -c 'cd game && exec python play.py'", "bash -lc ./play.sh", "{python} -uc 'import play; play.py'"),
        *("bash -e -c ./play.sh", "bash --rcfile gone.sh -c true", "{python} -m pkg.py"),
    ],
)
def test_only_the_script_of_an_interpreter_must_be_there(line: str) -> None:
    """Other programs may find their files elsewhere."""
    Remote(command=line).ready()


@pytest.mark.parametrize(
    "options", ["-r ./hook.js", "--import=./hook.mjs", "--require ./hook.js", "-e 'require(0).js'"]
)
def test_an_option_of_an_interpreter_may_take_the_next_word(options: str, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.symlink_to("/bin/true")
    Remote(command=f"{node} {options} play.js").ready()
    with pytest.raises(BadRequest, match=r"there is no file play\.js here"):
        Remote(command=f"{node} -i play.js").ready()


def test_a_command_that_cannot_be_executed_is_one_line(tmp_path: Path) -> None:
    """That is seen as it starts: before, it is a file that may be executed."""
    game = tmp_path / "game"
    game.write_bytes(b"\x00of another machine")
    game.chmod(0o700)
    for world in (Remote(command=str(game)), Remote(command=str(game), protocol="godot_rl")):
        world.ready()
        with closing(world), pytest.raises(Unplayable) as caught:
            world.arena(2, EPISODES)
        assert str(caught.value) == f"mdp.command: {game} cannot be started: Exec format error"


def test_a_misspelt_side_is_refused() -> None:
    with (
        closing(Remote(command=TAG, opponent="game", side="runer")) as world,
        pytest.raises(BadRequest, match="side: tag has no side runer; did you mean runner"),
    ):
        world.arena(2, EPISODES)
    with (
        closing(Remote(command=TAG, opponent="game", side="blue")) as world,
        pytest.raises(BadRequest, match="side: tag has no side blue; there are: catcher, runner"),
    ):
        world.arena(2, EPISODES)


def test_opponents_where_the_game_should_play_name_the_key() -> None:
    world = Remote(command=f"{FAULTY} 'no rule' -", opponent="game")
    with closing(world), pytest.raises(BadRequest, match=r"^mdp\.opponent: tag plays no side itself"):
        new_run(replace(experiment_of("mdp=pong", "opponents=past"), mdp=world))


def test_messages_call_a_remote_game_by_its_name() -> None:
    with closing(Remote(command=f"{FAULTY} 'no rule' -")) as world:
        assert world.title == "tag" and Duel().all_sides().title == "Duel"
        with pytest.raises(BadRequest, match=r"^tag has no rule player"):
            world.one_side(0)


def test_what_must_be_trusted_again_to_go_on() -> None:
    run = replace(experiment_of("mdp=pong"), mdp=Remote(command=TAG))
    assert run.trust == (TAG,) and experiment_of("mdp=pong").trust == experiment_of("mdp=cartpole").trust == ()
    again = shlex.split(command.resume(Path("runs/a"), run.trust, "budget.steps=9"))
    assert again[-3:] == ["resume=runs/a", "budget.steps=9", f'trust=["{TAG}"]']


def test_what_a_game_refuses_in_a_run_names_the_key() -> None:
    world = Remote(command=TAG, opponent="game", side="blue")
    with closing(world), pytest.raises(BadRequest, match=r"^mdp\.side: tag has no side blue"):
        new_run(replace(experiment_of("mdp=pong"), mdp=world))


@pytest.mark.parametrize("listen", ["127.0.0.1:5005", "unix:/tmp/game"])
def test_where_one_process_listens_there_are_no_others(listen: str) -> None:
    local = replace(experiment_of("mdp=pong"), mdp=Remote(listen=listen))
    with pytest.raises(BadRequest, match=rf"^cluster: one process can listen at {listen} .*: take cluster=local"):
        replace(local, cluster=Processes())
    replace(local, mdp=Remote(command=TAG, listen="127.0.0.1:0"), cluster=Processes())  # a free port for each


def longest_episode(records: Records) -> int:
    """The most decisions of an episode, also of those that have not ended."""
    ends = [[0, *(number for number, row in enumerate(slot) if any(row[2])), len(slot)] for slot in records.rows]
    return max(after - before for slot in ends for before, after in pairwise(slot))


def test_a_declared_time_limit_is_held() -> None:
    """It bounds evaluations, so an episode that goes on would never be cut."""
    with opened(2) as arena:
        longest = longest_episode(Records(arena).play(200))
    with opened(2, time_limit=longest) as arena:
        Records(arena).play(200)
    with opened(2, time_limit=longest - 1) as arena, pytest.raises(Mismatch) as caught:
        Records(arena).play(200)
    assert str(caught.value) == (
        f"an episode of tag goes on after {longest - 1} decisions, and mdp.time_limit says that each has ended by then"
    )


@pytest.mark.slow_cases(but=("repeats",))
@pytest.mark.parametrize("words", ["", "mortal"], ids=["repeats", "does not"])
def test_a_battle_that_is_lost_does_not_count_its_decisions_twice(words: str, tmp_path: Path) -> None:
    with opened(2) as arena:
        longest = longest_episode(Records(arena).play(200))
    with opened(2, f"{FAULTY} failed {tmp_path}/mark 90 {words}", time_limit=longest) as arena:
        Records(arena).play(200)
    assert (tmp_path / "mark").exists()


def test_who_waits_in_vain_hears_why_a_connection_was_refused(tmp_path: Path) -> None:
    """Such as one of another protocol, or one without the token."""
    path = str(tmp_path / "game")

    def visit() -> None:
        with socket.socket(socket.AF_UNIX) as line:
            while line.connect_ex(path):
                time.sleep(0.01)
            line.sendall(struct.pack("<I", 5) + b"\xc1" * 5)
            line.recv(1)

    visitor = Thread(target=visit, daemon=True)
    visitor.start()
    world = Remote(listen=f"unix:{path}", start_s=1.0)
    with (
        closing(world),
        pytest.raises(Unplayable, match=r"in 1 s \(mdp.start_s\); a connection was refused: it sent a"),
    ):
        world.arena(2, EPISODES)
    visitor.join(10)


HELLO: dict[str, Any] = {
    "type": "hello", "protocol": 1, "token": "", "game": "it", "action": {"kind": "discrete", "n": [2]},
    "inputs": [{"name": "view", "shape": [2]}],
}  # fmt: skip


@pytest.mark.parametrize("other", [{"features": ["aside", "ahead"]}, {"names": [["hold", "go"]]}, {}])
def test_games_whose_numbers_have_other_names_are_not_alike(other: dict[str, Any]) -> None:
    """A potential would weigh another number by that name."""

    def offer(features: list[str], names: list[list[str]]) -> Offer:
        inputs = [{"name": "view", "shape": [2], "features": features}]
        action = {"kind": "discrete", "n": [2], "names": names}
        return Offer(read_hello(msgspec.msgpack.encode(HELLO | {"inputs": inputs, "action": action})))

    same: dict[str, Any] = {"features": ["ahead", "aside"], "names": [["go", "hold"]]}
    assert alike(offer(**same), offer(**same | other)) == (not other)


def test_features_of_an_input_have_names_of_their_own() -> None:
    hello = HELLO | {"inputs": [{"name": "view", "shape": [2], "features": ["x", "x"]}]}
    with pytest.raises(Nonsense, match="gives two of its features of the input 'view' the same name"):
        Offer(read_hello(msgspec.msgpack.encode(hello)))


def test_bounds_beyond_float32_are_none() -> None:
    """A double's largest number is C#'s and Java's word for that."""
    vast, single = sys.float_info.max, float(np.finfo(np.float32).max)
    action = {"kind": "box", "low": [-vast, -single, 0.0, -1.0], "high": [vast, single, 1e39, 1.0]}
    offer = Offer(read_hello(msgspec.msgpack.encode(HELLO | {"action": action})))
    assert offer.spec.action == Box((-np.inf, -np.inf, 0.0, -1.0), (np.inf, np.inf, np.inf, 1.0))
    drawn = np.stack([random_action(offer.spec, None, np.random.default_rng(n)) for n in range(20)])
    assert np.abs(drawn).max() < 10 and drawn[:, 2].min() == 0
    chosen = torch.tensor([[3.0, -2.0, -1.0, 5.0]])
    assert to_world(offer.spec.action, chosen).tolist() == [[3.0, -2.0, 0.0, 1.0]]


def test_no_action_exceeds_the_bounds_that_a_game_sent() -> None:
    """They are sent as float32: the nearest of 0.1 is more than that, of 0.7 less."""
    low, high = [-0.1, 0.7, -0.5, 0.1], [0.1, 1e39, 0.7, 0.1 + 2e-8]
    hello = HELLO | {"action": {"kind": "box", "low": low, "high": high}}
    action = Offer(read_hello(msgspec.msgpack.encode(hello))).spec.action
    for far in (-9.0, 9.0):
        sent = to_world(action, torch.full((1, 4), far)).numpy()[0].astype(np.float64)
        assert (sent >= low).all() and (sent <= high).all()
        nearer = np.nextafter(sent.astype(np.float32), np.float32(np.copysign(np.inf, far))).astype(np.float64)
        assert (nearer[:1] < low[:1]).all() if far < 0 else (nearer[[0, 2]] > np.array(high)[[0, 2]]).all()


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0 + 1e-12), (1e39, 2e39), (2.0, 1.0), (0.0, 0.0), (0.1, 0.1 + 1e-12)]
)
def test_bounds_without_a_number_between_them_are_refused(low: float, high: float) -> None:
    action = {"kind": "box", "low": [-1.0, low], "high": [1.0, high]}
    with pytest.raises(Nonsense, match="offers actions whose bounds are not low < high as float32"):
        Offer(read_hello(msgspec.msgpack.encode(HELLO | {"action": action})))


@pytest.mark.parametrize(("letters", "fits"), [(256, True), (257, False)])
def test_a_token_that_no_game_can_send_is_refused(letters: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORL_TOKEN", "s" * letters)
    Remote(command=TAG)  # does not use it
    if fits:
        Remote(listen="127.0.0.1:5005")
        assert read_hello(msgspec.msgpack.encode(HELLO | {"token": "s" * letters}))
    else:
        with pytest.raises(BadRequest, match="listen: EVORL_TOKEN has 257 letters, and 256 may be"):
            Remote(listen="127.0.0.1:5005")


@pytest.mark.parametrize("name", ["return", "length"])
def test_results_of_every_episode_are_no_results_of_a_game(name: str) -> None:
    with pytest.raises(Nonsense, match=f"results: {name} is a result of every episode"):
        Offer(read_hello(msgspec.msgpack.encode(HELLO | {"results": ["win", name]})))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"result": ["win"]}, "unknown field `result`; did you mean results?"),
        ({"inputs": [{"name": "view", "shap": [2]}]}, "did you mean shape?"),
        ({"inputs": [{"name": "view", "shape": [2], "dtype": "float64"}]}, "; there are float32 and uint8"),
    ],
)
def test_a_misspelt_offer_names_what_may_be_meant(field: dict[str, Any], message: str) -> None:
    with pytest.raises(Nonsense) as caught:
        read_hello(msgspec.msgpack.encode(HELLO | field))
    assert message in str(caught.value)


def test_of_a_long_name_that_is_unknown_the_beginning_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for what is nearest to a name of a megabyte took a second."""
    monkeypatch.setattr("evorl.mdp.remote.messages.nearest", lambda *_: pytest.fail("is looked for"))
    with pytest.raises(Nonsense) as caught:
        read(msgspec.msgpack.encode({"type": "ask", "A" * 1_000_000: 1}))
    assert "unknown field `AAA" in str(caught.value) and len(str(caught.value)) == 500


def test_a_mask_that_was_not_offered_is_refused() -> None:
    """A game that forgets ``masked`` would be played with actions that it does not allow."""
    offer = Offer(read_hello(msgspec.msgpack.encode(HELLO)))
    with pytest.raises(Nonsense, match="sent a legal mask, and its offer does not say masked"):
        four, one, eight = (memoryview(bytes(n)) for n in (4, 1, 8))
        offer.rows([Ask(0, four, one, four, one, four, (eight,), legal=four)])


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"kind": "Discrete", "n": [4]}, "the kind of the action is discrete or box, and is 'Discrete'"),
        ({"kind": "discrete", "n": 4}, "n of a discrete action is a list"),
        ({"n": [4]}, "the kind of the action is discrete or box, and is None"),
    ],
)
def test_the_client_in_python_says_what_is_no_action(action: dict[str, Any], message: str) -> None:
    client: Any = import_client()
    with pytest.raises(ValueError, match=message):
        client.Client({"inputs": [], "action": action}, None, "127.0.0.1:1")


def import_client() -> Any:
    spec = spec_from_file_location("evorl_client", CLIENTS / "python" / "evorl_client.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_client_in_python_refuses_rows_that_contradict_the_offer() -> None:
    module = import_client()
    with socket.create_server(("127.0.0.1", 0)) as listens:
        offer = {"inputs": [{"name": "view", "shape": [2]}], "action": HELLO["action"], "results": ["kills"]}
        client = module.Client(offer, None, f"127.0.0.1:{listens.getsockname()[1]}")
        battle = module.Battle(client, 0, 1, [0])
        with pytest.raises(ValueError, match="the offer does not say masked"):
            battle.ask(0, [[1.0, 2.0]], [1, 0])
        with pytest.raises(ValueError, match="an episode ends without its result 'kills'"):
            battle.end(0, [[1.0, 2.0]])
        client._socket.close()
