"""The clients in other languages, each with its example game. What a machine lacks is skipped."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from browsing import CHROMIUM, needs_chromium
from remote_games import EPISODES, Records, opened

import evorl.mdp
from evorl.mdp.core import Box, MultiDiscrete
from evorl.mdp.remote import Remote
from evorl.mdp.remote.process import CLIENTS

SUMO = "node {clients}/javascript/sumo/sumo.js"
SLOTS, DECISIONS = 4, 60
node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node: make web as root")


@node
def test_the_game_in_javascript_conforms() -> None:
    with closing(Remote(command=SUMO)) as world:
        evorl.mdp.check(world, slots=6, decisions=60)
        assert world.spec.action == MultiDiscrete((9, 2))
        assert world.side_names == ("blue", "red")


@node
def test_a_websocket_changes_nothing() -> None:
    """As from a browser. Node 20 has WebSocket behind a flag, node 22 without one."""
    flag = "--experimental-websocket"
    has = subprocess.run(["node", flag, "-e", "WebSocket"], capture_output=True).returncode == 0
    if not has:
        pytest.skip("this node has no WebSocket")
    command = f"env EVORL_ADDRESS=ws://{{host}}:{{port}} {SUMO.replace('node', f'node {flag}')}"
    with opened(SLOTS, SUMO) as arena:
        plain = Records(arena).play(DECISIONS).first(DECISIONS)
    with opened(SLOTS, command, processes=2) as arena:
        assert Records(arena).play(DECISIONS).first(DECISIONS) == plain


@node
def test_the_game_in_javascript_in_real_time() -> None:
    with opened(4, f"{SUMO} --realtime") as arena:
        records = Records(arena).play(4)
    assert records.failed == 0


@node
def test_packing_in_javascript_is_that_of_msgpack(tmp_path: Path) -> None:
    import msgspec

    values = [
        None,
        True,
        0,
        127,
        128,
        -1,
        2**40,
        0.5,
        "ä",
        b"\0\1",
        [1, [2]],
        {"a": {"b": []}},
        "x" * 300,
        b"y" * 70_000,
    ]
    packed = [msgspec.msgpack.encode(value) for value in values]
    script = (
        f"const {{ pack, unpack }} = require({str(CLIENTS / 'javascript' / 'evorl.js')!r});"
        "for (const line of require('fs').readFileSync(0, 'utf8').trim().split('\\n'))"
        "  console.log(Buffer.from(pack(unpack(Buffer.from(line, 'hex')))).toString('hex'));"
    )
    lines = "\n".join(one.hex() for one in packed)
    done = subprocess.run(["node", "-e", script], input=lines, capture_output=True, text=True, check=True)
    assert [msgspec.msgpack.decode(bytes.fromhex(line)) for line in done.stdout.split()] == values


@node
def test_an_offer_in_javascript_may_have_typed_arrays() -> None:
    import msgspec

    script = (
        f"const {{ pack }} = require({str(CLIENTS / 'javascript' / 'evorl.js')!r});"
        "process.stdout.write(Buffer.from(pack({ low: new Float32Array([-1, 0.5]), n: new Int32Array([3]) })));"
    )
    done = subprocess.run(["node", "-e", script], capture_output=True, check=True)
    assert msgspec.msgpack.decode(done.stdout) == {"low": [-1, 0.5], "n": [3]}


@node
def test_a_game_in_javascript_ends_when_its_connection_does() -> None:
    """Also while its battles have clocks that run, and however evorl ends."""
    import msgspec

    begin = msgspec.msgpack.encode({"type": "begin", "battle": 0, "seed": 1, "players": [0, 1]})
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        words = ["node", f"{CLIENTS}/javascript/sumo/sumo.js", "--realtime"]
        with subprocess.Popen(words, env={**os.environ, "EVORL_ADDRESS": address, "EVORL_TOKEN": ""}) as game:
            try:
                with closing(server.accept()[0]) as line:
                    line.sendall(len(begin).to_bytes(4, "little") + begin)
                    received = b""
                    while b"heard" not in received:  # its first rows
                        received += line.recv(1 << 16)
                assert game.wait(30) == 0
            finally:
                game.kill()


WRONG = [
    "a row has 2 legal or illegal choices, and got 0",
    "a row has 2 legal or illegal choices, and got 3",
    "legal choices are given, and the offer does not say masked",
]
"""Of masks that are not as offered, as the client in Python says it."""


@node
def test_the_client_in_javascript_refuses_rows_that_contradict_the_offer() -> None:
    """Before evorl gets the row, which would cost the connection and all of its battles."""
    script = (
        f"const {{ Client }} = require({str(CLIENTS / 'javascript' / 'evorl.js')!r});"
        "const offer = { inputs: [{ name: 'view', shape: [1] }], results: ['kills'] };"
        "offer.action = { kind: 'discrete', n: [2] };"
        "const told = (masked, end, row) => {"
        "  const client = new Client({ ...offer, masked }, null, { address: process.argv[1], closed: () => {} });"
        "  try { client.row(0, 0, end, { inputs: [[0]], cost: 0, ...row }); console.log('fits'); }"
        "  catch (error) { console.log(error.message); }"
        "  client.close();"
        "};"
        "told(true, 0, {}); told(true, 0, { legal: [1, 1, 1] }); told(false, 0, { legal: [1, 1] });"
        "told(false, 1, { results: { kils: 1 } }); told(true, 1, { legal: [0, 1], results: { kills: 1 } });"
    )
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        words = ["node", "-e", script, f"127.0.0.1:{server.getsockname()[1]}"]
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert said == [*WRONG, "an episode ends without its result 'kills', which the offer names", "fits"]


csharp = pytest.mark.skipif(
    shutil.which("mcs") is None or shutil.which("mono") is None,
    reason="no mcs and mono, which `make test-all` installs as root, for the client in C#",
)
ROWS = """
using System;
using System.Collections.Generic;
using Evorl;

class Rows
{
    static void Told(string address, bool masked, byte end, Row row)
    {
        var offer = new Dictionary<string, object> {
            { "inputs", new[] { new Dictionary<string, object> { { "name", "view" }, { "shape", new[] { 1 } } } } },
            { "action", new Dictionary<string, object> { { "kind", "discrete" }, { "n", new[] { 2 } } } },
            { "results", new[] { "kills" } }, { "masked", masked } };
        var client = new Client(offer, null, address, "");
        row.Inputs = new[] { new[] { 0f } };
        try { client.Add(new Battle(client, 0, 1, new[] { 0 }), 0, end, row); Console.WriteLine("fits"); }
        catch (ArgumentException error) { Console.WriteLine(error.Message); }
        client.Dispose();
        try { client.Poll(0); Console.WriteLine("is open"); }
        catch (Exception) { }
    }

    static void Main(string[] words)
    {
        Told(words[0], true, 0, new Row());
        Told(words[0], true, 0, new Row { Legal = new[] { true, true, true } });
        Told(words[0], false, 0, new Row { Legal = new[] { true, true } });
        Told(words[0], false, 1, new Row());
        Told(words[0], true, 1, new Row { Legal = new[] { false, true }, Results = new[] { 1.0 } });
    }
}
"""


@csharp
def test_the_client_in_csharp_refuses_rows_that_contradict_the_offer(tmp_path: Path) -> None:
    (tmp_path / "Rows.cs").write_text(ROWS)
    words = [
        "mcs",
        "-warnaserror",
        f"-out:{tmp_path}/rows.exe",
        str(CLIENTS / "csharp" / "Evorl.cs"),
        f"{tmp_path}/Rows.cs",
    ]
    subprocess.run(words, check=True)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        words = ["mono", f"{tmp_path}/rows.exe", f"127.0.0.1:{server.getsockname()[1]}"]
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert said == [*WRONG, "an episode ends with 1 results, and got 0", "fits"]


@csharp
def test_the_game_in_csharp_conforms(tmp_path: Path) -> None:
    """It has a box of actions, two inputs, and two rewards."""
    sources = [str(CLIENTS / "csharp" / name) for name in ("Evorl.cs", "Goal.cs")]
    subprocess.run(["mcs", "-warnaserror", f"-out:{tmp_path}/goal.exe", *sources], check=True)
    with closing(Remote(command=f"mono {tmp_path}/goal.exe")) as world:
        evorl.mdp.check(world, slots=6, decisions=40)
        assert world.spec.action == Box((-1.0,), (1.0,))
        assert world.spec.rewards == ("progress", "win")
        assert [(one.name, one.dtype) for one in world.spec.inputs] == [("places", "float32"), ("map", "uint8")]


godot = pytest.mark.skipif(
    shutil.which("godot3-server") is None,
    reason="no godot3-server, which `make test-all` installs as root, for the client in GDScript",
)


@godot
def test_the_game_in_gdscript_conforms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # Godot writes there
    with closing(Remote(command="godot3-server --path {clients}/godot -s march.gd")) as world:
        evorl.mdp.check(world, slots=6, decisions=40)
        assert world.spec.masked


BATTLES = """
extends SceneTree
const Evorl = preload("evorl.gd")
const ROW = {"inputs": [[0.0]]}
var way

class Game:
    var battle
    var way
    func _init(its_battle, its_way):
        battle = its_battle
        way = its_way
        if way == "begin":
            battle.end(0, ROW)
    func act(_side, _action):
        if way == "fail":
            battle.fail("tired")
        elif way == "end":
            battle.end(0, ROW)
        way = "done"

func begin(battle):
    return Game.new(battle, way)

func play(client, number):
    var name = StreamPeerBuffer.new()
    name.put_u32(number)
    client._take({"type": "begin", "battle": number, "seed": 1, "players": [0]})
    client._take({"type": "act", "battle": name.data_array, "side": [0], "action": name.data_array})
    client._take({"type": "leave", "battle": number})

func left(client, count):
    var before = Performance.get_monitor(Performance.OBJECT_COUNT)
    for number in range(count):
        play(client, number)
    return Performance.get_monitor(Performance.OBJECT_COUNT) - before

func _init():
    var offer = {"inputs": [{"name": "view", "shape": [1]}], "action": {"kind": "discrete", "n": [2]}}
    for its_way in ["end", "begin", "fail", "leave"]:
        way = its_way
        var client = Evorl.new(offer, self, "begin")
        left(client, 1)
        print(way, " ", left(client, 50), " ", client._battles.size())
    quit()
"""


def printed(script: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that a script of Godot prints beside the client."""
    monkeypatch.setenv("HOME", str(place))  # Godot writes there
    shutil.copytree(CLIENTS / "godot", place / "game")
    (place / "game" / "script.gd").write_text(script)
    words = ["godot3-server", "--path", str(place / "game"), "-s", "script.gd"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


@godot
def test_battles_in_gdscript_are_freed_however_they_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert printed(BATTLES, tmp_path, monkeypatch)[-4:] == ["end 0 0", "begin 0 0", "fail 0 0", "leave 0 0"]


FAULTS = """
extends SceneTree
const Evorl = preload("evorl.gd")

func begin(_battle):
    return null

func told(masked, end, row):
    var offer = {"inputs": [{"name": "view", "shape": [1]}], "action": {"kind": "discrete", "n": [2]}}
    offer["results"] = ["kills"]
    offer["masked"] = masked
    var client = Evorl.new(offer, self, "begin")
    row["inputs"] = row.get("inputs", [[0.0]])
    client._take({"type": "begin", "battle": 0, "seed": 1, "players": [0]})
    client._row(client._battles[0], 0, end, row)
    var why = client._fault(end, row)
    print(why if why != "" else "fits", " ", client._battles.size(), " ", client._rows)

func _init():
    told(true, 0, {})
    told(true, 0, {"legal": [1, 1, 1]})
    told(false, 0, {"legal": [1, 1]})
    told(false, 1, {"results": {"kils": 1}})
    told(false, 0, {"reward": [1.0, 2.0]})
    told(false, 0, {"inputs": []})
    told(false, 0, {"inputs": [[0.0, 0.0]]})
    told(true, 1, {"legal": [0, 1], "results": {"kills": 1}})
    quit()
"""


@godot
def test_a_battle_in_gdscript_with_a_row_that_contradicts_the_offer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """GDScript has no exceptions."""
    wrong = [
        *WRONG, "an episode ends without its result 'kills', which the offer names",
        "a row has 1 rewards, and got [1, 2]", "a row has 1 inputs, and got 0",
        "input 'view' has 1 numbers, and a row had 2",
    ]  # fmt: skip
    assert printed(FAULTS, tmp_path, monkeypatch)[-8:] == [*(f"{why} 0 0" for why in wrong), "fits 1 1"]


PACKS = """
extends SceneTree
const Evorl = preload("evorl.gd")

func _init():
    var into = StreamPeerBuffer.new()
    into.big_endian = true
    Evorl._pack([PoolRealArray([-1, 0.5]), PoolIntArray([3]), PoolStringArray(["a"])], into)
    print(into.data_array.hex_encode())
    quit()
"""


@godot
def test_an_offer_in_gdscript_may_have_arrays_of_one_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import msgspec

    packed = bytes.fromhex(printed(PACKS, tmp_path, monkeypatch)[-1])
    assert msgspec.msgpack.decode(packed) == [[-1, 0.5], [3], ["a"]]


@pytest.mark.fault
@needs_chromium
def test_a_browser_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORL_TOKEN", "sumo")
    with closing(Remote(listen="127.0.0.1:0", start_s=60.0)) as world:
        from evorl.mdp.remote.server import SERVERS

        port = SERVERS[world._settings].address.port
        page = f"file://{CLIENTS}/javascript/sumo/index.html?token=sumo&address=ws://127.0.0.1:{port}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        words = [str(CHROMIUM), "--headless=new", "--no-sandbox", f"--user-data-dir={tmp_path}", page]
        with subprocess.Popen(words, env={**os.environ}, **quiet) as browser:
            try:
                with closing(world.arena(SLOTS, EPISODES)) as arena:
                    seen = Records(arena).play(DECISIONS).first(DECISIONS)
            finally:
                browser.kill()
    with opened(SLOTS, SUMO) as arena:
        assert Records(arena).play(DECISIONS).first(DECISIONS) == seen
