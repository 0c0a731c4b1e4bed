"""A game as the plugin of Godot RL Agents makes it (sync.gd), without Godot: ``--port=N --env_seed=N [FAULT MARK]``.

Three agents look for a number. A fault happens once, at the twentieth step, and makes the file MARK. With the fault
``no display`` the game ends there, and the next one does not start. With ``one licence`` only the first game starts;
with ``other agents`` and ``other order`` it differs from those after it.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import time
from pathlib import Path

words = dict(word.lstrip("-").split("=") for word in sys.argv[1:] if "=" in word)
fault, mark = ([word for word in sys.argv[1:] if "=" not in word] + ["", ""])[:2]
draw = random.Random(int(words["env_seed"]))
if fault == "no display" and Path(mark).exists() and not Path(mark + "2").exists():
    Path(mark + "2").touch()
    sys.exit("the display is busy")


def first():
    """Whether no process has failed before."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


later = fault in ("one licence", "other agents", "other order") and not first()
if fault == "one licence" and later:
    sys.exit("the licence is in use")
AGENTS = 4 if later and fault == "other agents" else 3
stream = socket.create_connection(("127.0.0.1", int(words["port"])))


def get():
    (size,) = struct.unpack("<I", exactly(4))
    return json.loads(exactly(size))


def exactly(size):
    data = b""
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            sys.exit()
        data += piece
    return data


def put(message):
    data = json.dumps(message).encode()
    stream.sendall(struct.pack("<I", len(data)) + data)


class Agent:
    def __init__(self):
        self.done = False
        self.reset()

    def reset(self):
        self.place, self.goal, self.steps = 0.0, draw.choice([-0.5, 0.5]), 0

    def set_action(self, action):
        move = action["move"][0] if fault == "continuous" else action["move"] - 1
        assert -1 <= move <= 1
        self.place += 0.1 * move
        self.steps += 1
        self.reward = -abs(self.goal - self.place)
        self.done = self.steps == 8 and fault != "endless"
        if self.done:
            self.reset()  # the observation is of the next episode

    def obs(self):
        since = 1.7e9 + self.steps if fault == "stamped" else self.goal
        return {"obs": [self.place, since], "camera_2d": bytes(range(24)).hex(), "kind": int(self.goal > 0)}


handshake = get()
assert handshake["type"] == "handshake" and handshake["major_version"] == "0"
assert get()["type"] == "env_info"
move = {"size": 1, "action_type": "continuous"} if fault == "continuous" else {"size": 3, "action_type": "discrete"}
action = {"move": move, **({"jump": {"size": 2, "action_type": "discrete"}} if fault != "continuous" else {})}
if fault == "other order":
    action["jump"]["size"] = 3
    action = dict(reversed(action.items())) if later else action
if fault == "mixed":
    action["turn"] = {"size": 2, "action_type": "continuous"}
seen = {
    "obs": {"size": [2], "space": "box"}, "camera_2d": {"size": [4, 2, 3], "space": "box"},
    "kind": {"size": 2, "space": "discrete"},
}  # fmt: skip
if fault == "vast":
    seen["obs"]["size"] = [60_000, 60_000]
if fault in ("escape", "blind"):
    seen = {"obs" if fault == "blind" else "\x1b[31mobs": seen["obs"]}
names = ["a", "b", "b"] if fault == "policies" else ["shared_policy"] * AGENTS
spaces = (seen, action) if fault == "old" else ([seen] * AGENTS, [action] * AGENTS)
count = 0 if fault == "nobody" else AGENTS
put({"type": "env_info", "observation_space": spaces[0], "action_space": spaces[1], "n_agents": count,
     "agent_policy_names": names})  # fmt: skip
agents, steps = [Agent() for _ in range(AGENTS)], 0
while (message := get())["type"] != "close":
    if message["type"] == "reset":
        for agent in agents:
            agent.reset()
        put({"type": "reset", "obs": [agent.obs() for agent in agents], "info": [{}] * AGENTS})
        continue
    for agent, one in zip(agents, message["action"], strict=True):
        agent.set_action(one)
    steps += 1
    reply = {"type": "step", "obs": [agent.obs() for agent in agents], "reward": [agent.reward for agent in agents],
             "done": [agent.done for agent in agents], "info": [{}] * AGENTS}  # fmt: skip
    if mark and steps == (2 if fault == "blind" else 20) and first():
        if fault in ("exit", "no display"):
            sys.exit("the game has crashed")
        if fault in ("freeze", "blind"):
            time.sleep(3600)
        if fault == "nan":
            reply["reward"][0] = float("nan")
        if fault == "vast reward":
            reply["reward"][0] = 1e39  # beyond float32
        if fault == "short":
            reply["obs"].pop()
        if fault == "garbage":
            reply = [reply]
        if fault == "picture":
            reply["obs"][0]["camera_2d"] = "00ff"
        if fault == "choice":
            reply["obs"][0]["kind"] = -1
        if fault == "half":
            reply["obs"][0]["kind"] = 0.5
    put(reply)
