"""A gymnasium environment class that is not registered: mdp=gymnasium mdp.id=module:Class."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import evorl
from harness import QUICK, fingerprint, newest

from evorl.mdp.conformance import check
from evorl.mdp.gymnasium import Gymnasium
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

MODULE = '''
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class GridWorld(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, size=4, limit=None, render_mode=None):
        self.size, self.limit, self.render_mode = size, limit, render_mode
        self.observation_space = gymnasium.spaces.Box(0, size - 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.integers(self.size, size=2), 0
        return self.place.astype(np.float32), {}

    def step(self, action):
        move = [(1, 0), (0, 1), (-1, 0), (0, -1)][action]
        self.place = np.clip(self.place + move, 0, self.size - 1)
        self.time += 1
        found = bool((self.place == self.size - 1).all())
        return self.place.astype(np.float32), float(found) - 0.01, found, self.time == self.limit, {}

    def render(self):
        picture = np.zeros((self.size, self.size, 3), np.uint8)
        picture[tuple(self.place)] = 255
        return picture.repeat(16, 0).repeat(16, 1)


class Corridors(VectorEnv):
    """The same walk along a line in every row; one generator draws the starts."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs, length=5):
        self.num_envs, self.length = num_envs, length
        self.single_observation_space = gymnasium.spaces.Box(0, length, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.place = np.zeros(num_envs, np.int64)

    def seen(self):
        return self.place[:, None].astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed if seed is None or isinstance(seed, int) else seed[0])
        mask = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        self.place[mask] = self.np_random.integers(self.length, size=int(mask.sum()))
        return self.seen(), {}

    def step(self, actions):
        self.place = np.clip(self.place + 2 * actions - 1, 0, self.length)
        found = self.place == self.length
        return self.seen(), found - 0.01, found, np.zeros(self.num_envs, bool), {}


class Registered(GridWorld):
    pass


class NoSpaces(gymnasium.Env):
    pass


class NoEnvironment:
    pass


def build():
    return GridWorld()


gymnasium.register("Registered", GridWorld, max_episode_steps=7)
'''
GRID = "my_envs.grid:GridWorld"
WORLD = ("mdp=gymnasium", f"mdp.id={GRID}", "mdp.time_limit=30", "trust=[my_envs]")
SMALL = tuple({word.partition("=")[0]: word for word in (*QUICK, "rl.slots=4", "checkpoint.every=0")}.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the package my_envs, importable in this process too."""
    import gymnasium

    here = tmp_path_factory.mktemp("classes")
    (here / "my_envs").mkdir()
    (here / "my_envs" / "__init__.py").touch()
    (here / "my_envs" / "grid.py").write_text(MODULE)
    sys.path.insert(0, str(here))
    importlib.invalidate_caches()
    yield here
    sys.path.remove(str(here))
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_envs"]:
        del sys.modules[name]
    gymnasium.registry.pop("Registered", None)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "world",
    [
        Gymnasium(id=GRID, time_limit=20),
        Gymnasium(id=GRID, kwargs={"size": 3, "limit": 9}),
        Gymnasium(id=GRID, kwargs={"limit": 12}, frame_skip=2),
        Gymnasium(id="my_envs.grid:Corridors", time_limit=20),
    ],
    ids=["time_limit", "kwargs", "frame_skip", "vector"],
)
def test_class_conforms(world: Gymnasium) -> None:
    world.ready()
    check(world, slots=3, decisions=40)


@pytest.mark.usefixtures("folder")
def test_keyword_arguments_and_limit_reach_the_environment() -> None:
    world = Gymnasium(id=GRID, kwargs={"size": 9}, time_limit=5)
    env = world.make()
    assert env.unwrapped.size == 9 and env.spec.max_episode_steps == 5
    env.close()
    capped = world.capped(3)
    assert isinstance(capped, Gymnasium) and capped.time_limit == 3
    assert Gymnasium(id=GRID).make().spec.max_episode_steps is None


@pytest.mark.usefixtures("folder")
def test_class_can_be_drawn() -> None:
    arena = Gymnasium(id=GRID).arena(2, Episodes(0))
    picture = arena.render(1)
    assert picture is not None and picture.shape == (64, 64, 3) and picture.max() == 255
    arena.close()


@pytest.mark.usefixtures("folder")
def test_registered_id_wins_over_class_of_the_same_name() -> None:
    env = Gymnasium(id="my_envs.grid:Registered").make()
    assert type(env.unwrapped).__name__ == "GridWorld" and env.spec.max_episode_steps == 7
    env.close()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("given", "key", "words"),
    [
        ({"id": "my_envs.gird:GridWorld"}, "id", "does not run here: No module named 'my_envs.gird'"),
        ({"id": "my_envs.grid:GridWold"}, "id", "my_envs.grid has no class GridWold; did you mean GridWorld"),
        ({"id": "my_envs.grid:NoEnvironment"}, "id", "is no class derived from gymnasium.Env"),
        ({"id": "my_envs.grid:build"}, "id", "is no class derived from gymnasium.Env"),
        ({"id": "my_envs.grid:NoSpaces"}, "id", "cannot be used: .*observation_space"),
        ({"id": "my_envs.grid:GridWorld-v3"}, "id", "is not registered with gymnasium"),
        ({"id": GRID, "kwargs": {"sise": 3}}, "kwargs", "unexpected keyword argument 'sise'"),
        ({"id": GRID, "vector": True}, "vector", "has no vector environment"),
    ],
)
def test_refused_class_is_explained(given: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        Gymnasium(**given).ready()
    assert caught.value.key == key and "\n" not in str(caught.value)


def test_class_needs_trust(folder: Path) -> None:
    words = ("run", "mdp=gymnasium", f"mdp.id={GRID}", f"hydra.run.dir={folder / 'untrusted'}")
    for extra in ((), ("+mdp.kwargs.size=3",), ("trust=[other]",)):
        done = evorl(*words, *extra, cwd=folder)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            "evorl: mdp.id: imports my_envs; to run its code add 'trust=[my_envs]' to the command line"
        )
    assert not (folder / "untrusted").exists()


@pytest.mark.slow  # the class conforms above, and runs of other worlds resume in tests/jobs
@pytest.mark.parametrize("id", [GRID, "my_envs.grid:Corridors"], ids=["env", "vector"])
def test_run_resumes_to_the_bit_and_is_evaluated(id: str, folder: Path, tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    words = ("run", *WORLD, *SMALL, f"mdp.id={id}")
    assert evorl(*words, "budget.steps=512", f"hydra.run.dir={whole}", cwd=folder).returncode == 0
    assert evorl(*words, "budget.steps=256", f"hydra.run.dir={halves}", cwd=folder).returncode == 0
    stopped = newest(halves)["run"]["steps"]
    resumed = evorl("run", f"resume={halves}", "trust=[my_envs]", "budget.steps=512", cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    assert fingerprint(halves, aside=[stopped]) == fingerprint(whole, aside=[stopped])
    refused = evorl("evaluate", f"run={whole}", "episodes=2", cwd=folder)
    assert refused.returncode == 2 and "add 'trust=[my_envs]'" in refused.stderr
    film = ["video=true"] if id == GRID else []
    done = evorl("evaluate", f"run={whole}", "episodes=2", "trust=[my_envs]", *film, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len([*whole.rglob("*.mp4")]) == len(film)


@pytest.mark.slow
def test_worker_processes_make_the_class(folder: Path, tmp_path: Path) -> None:
    words = (*WORLD, "+mdp.kwargs.size=3", "ec=pbt", "ec.population=2", "ec.train_steps=128")
    few = (
        "ec.episodes=2",
        "cluster=processes",
        "cluster.workers=2",
        "budget.steps=256",
        f"hydra.run.dir={tmp_path / 'run'}",
    )
    done = evorl("run", *words, *SMALL, *few, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()
