"""Every file of conf/ composes, means what its dataclass says, and a wrong value is refused by its key."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import yaml
from conf_files import FILES, name, split, words_of
from harness import script
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import OmegaConf

from evorl import evaluate, export, play, run
from evorl.analysis.runs import flatten
from evorl.cli import config, overrides
from evorl.cli.hydra_internals import Hydra
from evorl.jobs.job import checked_experiment
from evorl.training.experiment import Budget
from evorl.util.errors import BadRequest
from evorl.util.typed import completed, typed
from evorl.util.types import Count, Positive

write_conf = script("write_conf")
ROOM_FILES = [path for path in FILES if path.parent.name in overrides.GROUPS]


@pytest.fixture(scope="module")
def hydra() -> Iterator[Hydra]:
    with config.opened() as found:
        yield found


def experiment(hydra: Hydra, *words: str) -> Any:
    data = config.resolved(config.compose(hydra, words))
    return config.experiment(data, config.trusted_packages(words, data))


ROBOTS = ("ant", "halfcheetah", "hopper", "humanoid", "swimmer", "walker2d")
GAMES = ("cartpole", "duel", "seaquest", "vector_pong")


def again(path: Path) -> bool:
    """Whether a file differs by its robot, its game or its share of elites from one that is composed as well.

    All files of ``tuned`` have a test of their own, and one for each algorithm is composed. Evolvers are composed for
    their ``--help`` as well, and all files with a target are compared with their dataclass.
    """
    group = path.parent.name
    if group in COMPOSED:
        return path.stem not in COMPOSED[group]
    if group == "mdp":
        return path.stem.startswith(ROBOTS[1:]) or path.stem.endswith("_v4")
    if "elite_replay" in path.parts:
        return path.parent.name in (*GAMES, "dqn") and path.stem not in ("elite_1", "cartpole")
    return "aes_rl" in path.parts and path.stem.endswith(ROBOTS[1:] if path.parent.name != "as_published" else ROBOTS)


COMPOSED = {
    "tuned": (
        *("atari_dqn", "cartpole_a2c", "cartpole_impact", "cartpole_ppo", "pendulum_sac", "pendulum_td3"),
        "pong_vtrace",
    ),
    "ec": ("none", "pbt", "cem_rl", "optuna", "psro", "map_elites", "hyperband"),
}
TUNED_FILES = sorted((config.CONF / overrides.TUNED).glob("*.yaml"))


@pytest.mark.parametrize("path", TUNED_FILES, ids=name)
def test_tuned_settings_are_keys_of_their_world_and_algorithm(path: Path) -> None:
    """As `test_every_file_composes_and_instantiates`, without the composition."""
    said: Any = OmegaConf.to_container(OmegaConf.load(path))
    world, _, algorithm = path.stem.rpartition("_")
    assert (config.CONF / "mdp" / f"{world}.yaml").exists()
    assert {*said} <= {"defaults", "rl", "budget"}
    for other in said.get("defaults", []):
        assert other == "_self_" or (path.parent / f"{other}.yaml").exists()
    usual = OmegaConf.load(config.CONF / "rl" / f"{algorithm}.yaml")
    merged: Any = OmegaConf.to_container(OmegaConf.merge(usual, said.get("rl", {})))
    typed(merged, write_conf.target(f"_target_: {merged.pop('_target_')}"), "rl")
    typed(said.get("budget", {}), Budget, "budget")


@pytest.mark.filterwarnings(r"ignore:\s*'hydra/launcher/ray' is validated against ConfigStore schema")  # see opened()
@pytest.mark.parametrize(
    "path", [pytest.param(path, id=name(path), marks=[pytest.mark.slow] * again(path)) for path in FILES]
)
def test_every_file_composes_and_instantiates(hydra: Hydra, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the engine of football that is built from source need not be there
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "mdp" / "stand_in"))
    group, choice = split(path)
    composed = config.compose(hydra, words_of(path))
    assert not group or composed.hydra.runtime.choices[group] == choice
    assert group != overrides.TUNED or config.uses_tuned(composed)
    data = config.resolved(composed)
    config.experiment(data)
    if group == "hydra/launcher":
        assert type(instantiate(composed.hydra.launcher)).__name__.lower() == f"{choice}launcher"
    if group in overrides.GROUPS and choice != "none":
        target = data[group]["_target_"]
        assert target.startswith(f"evorl.{group}.")
        importlib.import_module(target.rpartition(".")[0])


@pytest.mark.parametrize("path", write_conf.FILES, ids=name)
def test_the_files_of_algorithms_are_as_the_command_writes_them(path: Path) -> None:
    """Else: python scripts/write_conf.py."""
    assert path.read_text(encoding="utf-8") == write_conf.written(path)


def test_a_default_is_written_as_yaml_reads_it() -> None:
    for value in (3e-4, 1e-5, 1.5e-7, 0.0, 0.001, 1e-3**0.5, 2000.0, 1e20, 7, 26_000_000, -4, True, None, [64, 0.5]):
        assert yaml.safe_load(write_conf.text(value)) == value
    assert write_conf.text(3e-4) == "3.0e-4" and write_conf.text({"a": [1e-5]}) == "{a: [1.0e-5]}"


@pytest.mark.parametrize("path", [path for path in ROOM_FILES if "_target_" in path.read_text()], ids=name)
def test_a_file_with_a_target_restates_the_defaults(path: Path) -> None:
    said: Any = OmegaConf.to_container(OmegaConf.load(path))
    module, _, kind = said.pop("_target_").rpartition(".")
    required = {name: "given" for name, value in said.items() if value == "???"}
    made = getattr(importlib.import_module(module), kind)(**required)
    whole = json.loads(msgspec.json.encode(made))
    assert completed(said | required, made) == whole
    assert typed(said | required, type(made)) == made
    lacking = {*flatten(whole)} - {*flatten(said)}
    assert lacking == {*write_conf.unlisted(type(made))}


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [(["rl=td3", "rl.net.lstm=0"], "rl.net.lstm", 0), (["rl=a3c", "rl.asynchronous=true"], "rl.asynchronous", True)],
)
def test_a_key_that_no_file_lists_may_be_given(hydra: Hydra, words: list[str], key: str, value: object) -> None:
    """It has no effect, or no other value; the config of a run names it in any case."""
    for given in (words, words[:1]):
        data, made = checked_experiment(config.resolved(config.compose(hydra, given)), given)
        assert flatten(data)[key] == value and made == experiment(hydra, *words)
    with pytest.raises(BadRequest, match="unknown key"):
        config.compose(hydra, [*words, f"{key}x=1"])


def test_the_main_file_restates_the_defaults(hydra: Hydra) -> None:
    from evorl.mdp.reward_terms import Terms
    from evorl.training.experiment import Checkpoints, Evaluation

    data = config.resolved(config.compose(hydra, []))
    for key, kind in (("budget", Budget), ("eval", Evaluation), ("checkpoint", Checkpoints), ("reward", Terms)):
        assert data[key] == msgspec.to_builtins(kind())
    assert (data["seed"], data["device"]) == (0, "auto")


@pytest.mark.parametrize(("name", "weights"), [("original", 672), ("ours", 100)])
def test_marvins_policies_have_as_many_weights_as_their_page_says(hydra: Hydra, name: str, weights: int) -> None:
    from evorl.population.evaluation import evaluation_plan

    whole = experiment(hydra, f"+experiment=marvin/{name}")
    space = evaluation_plan(whole, whole.ec).space
    assert (space.size, whole.mdp.time_limit) == (weights, 1500)
    assert not space.weights_of(0).any()


# ------------------------------------------------------------------ typed()


@dataclass(frozen=True, kw_only=True)
class Inner:
    widths: tuple[Count, ...] = (64, 64)
    kind: Literal["tanh", "relu"] = "tanh"


@dataclass(frozen=True, kw_only=True)
class Outer:
    lr: Positive | Inner = 1e-3
    mode: bool | Literal["whiten"] | None = False
    steps: Count | None = None
    inner: Inner = field(default_factory=Inner)
    span: tuple[float, float] = (0.0, 1.0)
    on: bool = False
    text: str = ""
    note: str | None = None
    more: dict[str, Any] = field(default_factory=dict)
    shares: Positive | dict[str, Positive] = 1.0
    nested: tuple[dict[str, dict[str, Count]], ...] = ()
    mixed: tuple[Literal["whiten", "scale"] | tuple[int, ...] | None, ...] = ()

    def __post_init__(self) -> None:
        if self.span[0] > self.span[1]:
            raise ValueError("span must rise")
        if self.text == "bad":
            raise BadRequest("is bad", "text")


@pytest.mark.parametrize(
    ("words", "applies"),
    [(["mdp=pong"], True), (["rl=a2c"], False), (["rl=a2c", "tuned=pong_ppo"], True), (["~tuned"], False)],
)
def test_whether_tuned_settings_apply(hydra: Hydra, words: list[str], applies: bool) -> None:
    assert config.uses_tuned(config.compose(hydra, words)) == applies


def test_what_typed_accepts() -> None:
    data = {"steps": 1e6, "lr": 1, "span": [0, 2], "inner": {"widths": [8.0]}, "more": {"a": {"b": 1.5}}}
    made = typed(data, Outer)
    assert made == Outer(steps=1_000_000, lr=1.0, span=(0.0, 2.0), inner=Inner(widths=(8,)), more={"a": {"b": 1.5}})
    assert [typed({"mode": mode}, Outer).mode for mode in ("whiten", True, None)] == ["whiten", True, None]
    assert isinstance(made.steps, int) and isinstance(made.inner.widths, tuple)


@pytest.mark.parametrize(
    ("data", "key", "text"),
    [
        ({"lrr": 1}, "o.lrr", "did you mean o.lr?"),
        ({"inner": {"width": 1}}, "o.inner.width", "did you mean o.inner.widths?"),
        ({"inner": {"kind": "reluu"}}, "o.inner.kind", "did you mean relu?"),
        ({"inner": {"widths": [8, 0]}}, "o.inner.widths", "expected int >= 1, got 0"),
        ({"inner": 3}, "o.inner", "expected a mapping with the keys widths, kind, got 3"),
        ({"lr": "x"}, "o.lr", "got 'x'"),
        ({"lr": -1.0}, "o.lr", "> 0"),
        ({"lr": float("nan")}, "o.lr", "finite"),
        ({"lr": float("inf")}, "o.lr", "finite"),
        ({"steps": 1.5}, "o.steps", "expected int | null, got 1.5"),
        ({"steps": True}, "o.steps", "got true"),
        ({"span": [1]}, "o.span", "expected a list [float, float] of length 2, got [1]"),
        ({"span": 3}, "o.span", "expected a list [float, float], got 3"),
        ({"inner": {"widths": 64}}, "o.inner.widths", "expected a list [int, ...], got 64"),
        (
            {"mode": "whitten"},
            "o.mode",
            "expected one of whiten, true, false, null, got 'whitten'; did you mean whiten?",
        ),
        ({"mode": "fals"}, "o.mode", "did you mean false?"),
        ({"mode": 3}, "o.mode", "got 3"),
        ({"span": [2, 1]}, "o", "span must rise"),
        ({"text": "bad"}, "o.text", "is bad"),
        ({"on": 1}, "o.on", "expected bool, got 1"),
        ({"on": "Yes"}, "o.on", "expected bool, got 'Yes'; did you mean true?"),
        ({"mode": "off"}, "o.mode", "got 'off'; did you mean false?"),
        ({"on": None}, "o.on", "got null"),
        ({"shares": {"a": 1.0, "b": "x"}}, "o.shares.b", "expected float, got 'x'"),
        ({"shares": {"a": -1.0, "b": 2.0}}, "o.shares.a", "expected float > 0.0, got -1.0"),
        ({"nested": 1}, "o.nested", "expected a list [mapping, ...], got 1"),
        ({"mixed": 1}, "o.mixed", "expected a list [scale or whiten or list or null, ...], got 1"),
        ({"nested": [{"a": {"b": 1}}, {"c": {"d": 2, "e": 0}}]}, "o.nested.c.e", "expected int >= 1, got 0"),
    ],
)
def test_what_typed_refuses(data: dict[str, Any], key: str, text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        typed(data, Outer, "o")
    assert caught.value.key == key
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"on": [True, False]}, "; to run each, --multirun o.on=true,false, in Python evorl.sweep"),
        ({"shares": [0.5, 1]}, "; to run each, --multirun o.shares=0.5,1, in Python evorl.sweep"),
        ({"span": [1]}, ""), ({"text": []}, ""), ({"lr": [[1]]}, ""),
    ],
)  # fmt: skip
def test_a_list_in_place_of_a_value_may_mean_a_sweep(data: dict[str, Any], hint: str) -> None:
    for swept in (True, False):
        with pytest.raises(BadRequest) as caught:
            typed(data, Outer, "o", swept)
        assert ("; to run" in str(caught.value)) == (swept and bool(hint)) and (not swept or hint in str(caught.value))


# ------------------------------------------------------------------ composing and building


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["seed"], "cannot read 'seed'"),
        (["seed=[1"], "cannot read"),
        (["=3"], "cannot read"),
        (["seed=1,2"], "seed: several values; add --multirun"),
        (["rl.clip.x=1"], "rl.clip.x: rl.clip is a value"),
        (["lr=1"], "lr: unknown key; in evorl this is rl.lr=1"),
        (["+sede=1"], "sede: unknown key; did you mean seed?"),
        (["+debgu=tiny"], "debgu: unknown key; did you mean +debug?"),
        (["debgu=tiny"], "debgu: unknown key; did you mean +debug?"),
        (["experimnt=solve/pong"], "experimnt: unknown key; did you mean +experiment?"),
        (["foo=1"], "trust, +debug, +experiment, tuned"),
        (["rl.lr=[1]"], "rl.lr: expected a value like {start: "),
        (["++rl.net.hidden={a: 1}", "rl=a2c"], "rl.net.hidden: expected a value like [64, 64], got {a: 1}"),
        (["budget=[true, null]"], "budget: expected a value like {steps: null, "),
        (["mdp=duel", "mdp.knight.strike={cast: 1, dammage: 2}"], "did you mean mdp.knight.strike.damage?"),
        (["mdp=duel", "mdp.archer={roll: {cats: 1}}"], "mdp.archer.roll.cats: unknown key; did you mean"),
        (["budget={stepz: 2}"], "budget.stepz: unknown key; did you mean budget.steps?"),
        (["mdp=cartpole", "mdp.kwargs.a=1"], "mdp.kwargs.a: no such key yet; +mdp.kwargs.a=... adds it"),
        (["ec=pbt", "ec.genes.rl.lr=[1,2]"], "ec.genes.rl.lr: no such key yet; +ec.genes.rl.lr=... adds it"),
        (["ec.genes.rl.lr=[1,2]"], "ec.genes.rl.lr: unknown key of ec=none; it belongs to ec=asha, ec=cem, "),
        (["+mdp.kwargs.a=1"], "mdp.kwargs.a: unknown key of mdp=pong; it belongs to mdp=acrobot, "),
        (["+cluster.workers=2"], "cluster.workers: unknown key of cluster=local; it belongs to cluster=processes, "),
        (["+seed.x=3"], "seed.x: seed is a value; it has no keys"),
        (["rl=dqn", "+rl.epsilon={strt: 1}"], "rl.epsilon.strt: unknown key; did you mean rl.epsilon.start?"),
        (["rl=r2d2", "rl.replay.prioritized.beta.start=1"], "rl.replay.prioritized.beta.end: a value is needed"),
        (["rl._target_=evorl.rl.dqn.DQN", "rl.alpha=1"], "rl.alpha: unknown key; this is rl.replay.prioritized.alpha="),
        (["hydra.run.dir=[1]"], "hydra.run.dir: Cannot convert 'list' to string: '[1]'"),
        (["hydra.job.num=x"], "hydra.job.num: Value 'x' of type 'str' could not be converted to Integer"),
        (["~debug"], "debug: nothing is chosen, so there is nothing to leave out"),
        (["~tuned=x"], "tuned: x is not chosen, so there is nothing to leave out"),
        (["~experiment"], "experiment: nothing is chosen"),
        (["++debug=tiny"], "debug: choose with a plus: +debug=NAME"),
        *(([f"~{key}"], f"{key}: every run has one") for key in ("seed", "ec", "cluster", "budget", "hydra.run.dir")),
        (["~rl.clip=1"], "rl.clip: is 0.2, not 1"),
        (["~budget.steps"], "budget.steps: is null, so there is nothing to leave out"),
        (["~mdp.serve.0"], "mdp.serve.0: mdp.serve is a value; it has no keys"),
        (["+rl=a2c"], "rl: has a choice already; write rl=a2c without the plus"),
        (["rl@mdp=a2c"], "rl: has its place; write rl=a2c without the @"),
        (["mdp=[pong]"], "mdp: takes one choice, got [pong]"),
        (["rl=a2c", "+rl.lr=''"], "rl.lr: is there already; write rl.lr='' without the plus"),
        (["tuned=pong_pppo"], "tuned: no choice 'pong_pppo'; did you mean pong_ppo?"),
        (["tunned=pong_ppo"], "tunned: unknown key; did you mean tuned?"),
        (["+debug=tinny"], "debug: no choice 'tinny'; did you mean tiny?"),
        (["mdp=null"], "mdp: no choice null"),
        (["+ec.population=8"], "ec.population: unknown key"),
        (["~rl"], "rl: every run has one"),
        (["seed=???"], "seed: a value is needed"),
        (["seed=${nothing}"], "seed: Interpolation key 'nothing' not found"),
        (["+seed=1"], "seed: is there already; write seed=1 without the plus"),
        (["hydra.run.dri=x"], "hydra.run.dri"),
        (["budget.steps=0"], "budget.steps: expected int >= 1, got 0"),
        (
            ["rl.minibatch=4096", "~tuned"],
            "rl.minibatch: 4096 is more than a batch has: 2048 decisions, members x",
        ),
        (
            ["rl.minibatch=2048", "~tuned", "rl.asynchronous=true", "rl.members=2", "rl.slots=8"],
            "rl.minibatch: 2048 is more than a batch has: 1024 decisions, slots x horizon of one member",
        ),
        (["rl._target_=evorl.mdp.pong.Pong"], "rl._target_: evorl.mdp.pong.Pong is no Hyper"),
        (["rl._target_=evorl.rl.core.Hyper"], "rl._target_: evorl.rl.core.Hyper is no Hyper dataclass"),
        (["rl._target_=evorl.rl.ppoo.PPO"], "rl._target_: there is no module evorl.rl.ppoo"),
        (["rl._target_=os.system"], "rl._target_: os.system is outside evorl; to run its code add 'trust=[os]'"),
        (["rl._target_=evorl"], "rl._target_: evorl is no MODULE.CLASS"),
        (["rl._target_=evorl..PPO"], "rl._target_: evorl..PPO is no MODULE.CLASS"),
        (["rl._target_='evorl.'"], "rl._target_: evorl. is no MODULE.CLASS"),
        (["mdp=gymnasium", "mdp.id=tabnanny:X-v0"], "mdp.id: imports tabnanny; to run its code add 'trust=[tabnanny]"),
        (
            ["mdp=gymnasium", "mdp.id=CartPole-v1", "mdp.wrappers=[tabnanny:X]"],
            "mdp.wrappers: imports tabnanny; to run its code add 'trust=[tabnanny]'",
        ),
        (
            ["mdp=pettingzoo", "mdp.id=mpe2.simple_spread_v3", "mdp.wrappers=[tabnanny:X]"],
            "mdp.wrappers: imports tabnanny; to run its code add 'trust=[tabnanny]'",
        ),
        (
            ["mdp=gymnasium", "mdp.id=CartPole-v1", "mdp.wrappers=TimeLimit"],
            "mdp.wrappers: expected a list [str or mapping, ...], got 'TimeLimit'",
        ),
        (["mdp=gymnasium", "mdp.id=xml.dom:X-v0", "trust=[xml]"], "mdp.id: xml.dom:X-v0 is not registered"),
        (["rl._target_=os.system", "trust=[os]"], "rl._target_: os.system is no Hyper"),
    ],
)
def test_what_the_door_refuses(hydra: Hydra, words: list[str], text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        experiment(hydra, *words)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_of_the_command_line(hydra: Hydra) -> None:
    made = experiment(hydra, "budget.steps=1e6", "rl.lr={start: 1e-3, end: 0, steps: 1e5}", "rl.net.hidden=[32]")
    assert made.budget.steps == 1_000_000
    assert made.rl.lr.start == 1e-3
    assert made.rl.net.hidden == (32,)


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["rl=a2c", "~rl.lr", "rl.lr=3"], "rl.lr", 3),
        (["ec=pbt", "+ec.genes.rl.lr=[1,2]", "ec.genes.rl.lr=[3,4]"], "ec.genes.rl.lr", [3, 4]),
        (["ec=pbt", "+ec.genes={rl: {lr: [1,2], clip: [1,2]}}", "~ec.genes.rl.clip"], "ec.genes.rl", {"lr": [1, 2]}),
        (["mdp=cartpole", "mdp.kwargs={a: 1}"], "mdp.kwargs", {"a": 1}),
        (["rl=a2c", "rl.lr.start=1", "rl.lr.end=0", "rl.lr.steps=9"], "rl.lr", {"start": 1, "end": 0, "steps": 9}),
    ],
)
def test_words_that_build_on_each_other(hydra: Hydra, words: list[str], key: str, value: Any) -> None:
    found = OmegaConf.select(config.compose(hydra, words), key)
    assert (OmegaConf.to_container(found) if OmegaConf.is_config(found) else found) == value


def test_information_is_asked_about_keys_that_exist(hydra: Hydra) -> None:
    for word in ("+rl.foo=1", "budget={stepz: 2}", "+eval.evry=3", "++sede=1"):
        with pytest.raises(BadRequest, match="unknown key"):
            config.compose(hydra, [word], mode=RunMode.MULTIRUN)


def test_trust_is_given_on_the_command_line_only(hydra: Hydra) -> None:
    assert config.trusted_packages(["seed=1", "trust=[mine, yours]"], {"trust": ["mine", "yours"]}) == ("mine", "yours")
    assert config.trusted_packages(["trust=mine"], {"trust": "mine"}) == ("mine",)
    assert config.trusted_packages(["trust=3"], {"trust": 3}) == ("3",)
    assert config.trusted_packages(["seed=1"], {"trust": []}) == ()
    with pytest.raises(BadRequest, match="command line only"):
        config.trusted_packages(["seed=1"], {"trust": ["mine"]})


def test_a_class_of_somebody_else(hydra: Hydra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_a_test.py").write_text(
        "from dataclasses import dataclass\nfrom evorl.mdp.pong.world import Pong\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(Pong):\n    extra: int = 3\n"
    )
    (tmp_path / "mdp").mkdir()
    (tmp_path / "mdp" / "mine.yaml").write_text("_target_: mine_of_a_test.Mine\nextra: 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    with config.opened(extra=str(tmp_path)) as mine:
        with pytest.raises(BadRequest, match="trust"):
            experiment(mine, "mdp=mine")
        assert experiment(mine, "mdp=mine", "trust=[mine_of_a_test]").mdp.extra == 4
        assert experiment(mine, "mdp=mine", "mdp.rounds=2", "trust=[mine_of_a_test]").mdp.rounds == 2
        with pytest.raises(BadRequest, match=r"mdp.round: unknown key; did you mean mdp.rounds"):
            experiment(mine, "mdp._target_=mine_of_a_test.Mine", "mdp.round=2", "trust=[mine_of_a_test]")
        words = ("mdp._target_=mine_of_a_test.Mine", "+mdp.extra=5", "trust=[mine_of_a_test]")
        assert experiment(mine, *words).mdp.extra == 5


def test_compositions_share_what_is_read_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "acrobot_ppo.yaml").write_text("# @package _global_\nrl: {lr: 0.5}\n")
    changed = ["mdp=cartpole", "rl.lr=7", "+mdp.kwargs={a: 1}", "~rl.clip", "rl.net.hidden=[9]", "hydra.job.name=x"]
    searched = ["mdp=acrobot", f"hydra.searchpath=[file://{tmp_path}]"]
    cases: list[list[str]] = [["mdp=acrobot"], changed, searched, ["rl.gamma=0.5"], []]

    def composed(hydra: Hydra, words: list[str]) -> Any:
        return OmegaConf.to_container(config.compose(hydra, words), resolve=False)

    def alone(words: list[str]) -> Any:
        with config.opened() as hydra:
            return composed(hydra, words)

    want = [alone(words) for words in cases]
    assert (want[0]["rl"]["lr"], want[2]["rl"]["lr"]) == (3e-4, 0.5)
    with config.opened() as hydra:
        assert [composed(hydra, words) for words in cases] == want
        del cases[2], want[2]  # where the files of others are looked for, they are read again
        monkeypatch.setattr(OmegaConf, "load", lambda file: pytest.fail(f"{file} is read again"))
        assert [composed(hydra, words) for words in reversed(cases)] == want[::-1]


def test_a_file_is_read_again_where_it_has_changed(tmp_path: Path) -> None:
    """Files are shared by all compositions of a process, and a notebook's user edits them between two runs."""
    (tmp_path / "tuned").mkdir()
    for lr in (0.5, 0.25, 0.75):
        (tmp_path / "tuned" / "acrobot_ppo.yaml").write_text(f"# @package _global_\nrl: {{lr: {lr}}}\n")
        with config.opened(extra=str(tmp_path)) as hydra:
            assert config.compose(hydra, ["mdp=acrobot"]).rl.lr == lr


def test_words_of_a_smaller_door() -> None:
    assert config.parse_request(Outer, ["text=a,(b", "steps=1e3"]) == Outer(text="a,(b", steps=1000)
    with pytest.raises(BadRequest, match="txet: unknown key; did you mean text"):
        config.parse_request(Outer, ["txet=a"])
    with pytest.raises(BadRequest, match="cannot read"):
        config.parse_request(Outer, ["steps"])
    with pytest.raises(BadRequest, match=r"^text: is given twice, as a and as b; leave one out$"):
        config.parse_request(Outer, ["text=a", "steps=1", "text=b"])
    assert config.parse_request(Outer, ["text=a", "text=a"]).text == "a"
    with pytest.raises(
        BadRequest, match=r"steps: several values; a list is written 'steps=\[1,2\]', and a text with commas"
    ):
        config.parse_request(Outer, ["steps=1,2"])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *((name, name) for name in ("d/é (1)", "~/x", "2024", "a,b")),
        ("'my dir'", "my dir"),
        ("null", None),
    ],
)
def test_text_that_may_be_left_out_is_literal(written: str, read: str | None) -> None:
    assert config.parse_request(Outer, [f"note={written}"]).note == read


@pytest.mark.parametrize("command", [evaluate, play, export])
def test_a_run_that_is_not_there_is_told_first_with_the_nearest(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before keys that are missing or wrong; and a run without its key is told the key."""
    (tmp_path / "runs" / "carts").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for word in ("run=runs/cart", "run=runs/nothere"):
        assert command.main([word, "speed=x"]) == 2
        hint = "; did you mean runs/carts?" if word.endswith("cart") else ""
        assert capsys.readouterr().err == f"evorl: run: {word[4:]}: no such run directory{hint}\n"
    assert command.main(["runs/carts"]) == 2
    assert capsys.readouterr().err == "evorl: cannot read 'runs/carts'; did you mean run=runs/carts?\n"


def test_a_run_to_resume_is_told_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "carts" / ".hydra").mkdir(parents=True)
    (tmp_path / "carts" / ".hydra" / "config.yaml").write_text("seed: 0\n")
    monkeypatch.chdir(tmp_path)
    assert run.main(["carts"]) == 2
    assert capsys.readouterr().err == "evorl: cannot read 'carts'; did you mean resume=carts?\n"
    for key in ("resume", "init", "replay"):
        assert run.main([f"{key}=cart"]) == 2
        assert capsys.readouterr().err == f"evorl: {key}: cart: no such run directory; did you mean carts?\n"
    assert run.main(["mdp=pong", "opponents=runs", "opponents.runs=[cart]"]) == 2
    assert capsys.readouterr().err.endswith(f"/cart: no such run directory; did you mean {tmp_path}/carts?\n")


def test_a_run_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"run: .* is no run"):
        config.experiment_of_run(tmp_path)
    (tmp_path / ".hydra").mkdir()
    for text in ("[", "- 1", ""):
        (tmp_path / ".hydra" / "config.yaml").write_text(text)
        with pytest.raises(BadRequest, match="cannot read"):
            config.experiment_of_run(tmp_path)


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    from evorl.training.session import Interrupted

    def fail(error: BaseException, cause: Exception | None = None) -> Any:
        def work() -> None:
            raise error from cause

        return work

    def codes(cases: Sequence[Any]) -> list[int]:
        return [config.exit_code(case) for case in cases]

    assert codes([lambda: None, fail(BadRequest("no", "a.b")), fail(KeyboardInterrupt())]) == [0, 2, 130]
    assert capsys.readouterr().err == "evorl: a.b: no\nevorl: interrupted\n"
    assert codes([fail(Interrupted(number, "saved at step 7")) for number in (15, 2)]) == [143, 130]
    capsys.readouterr()
    assert config.exit_code(fail(RuntimeError("outer"), ValueError("inner"))) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "evorl: ValueError: inner" and lines[-1] == "RuntimeError: outer"
