"""Words of other suites are answered with the words of evorl."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from harness import ROOT, composed_once

from evorl.cli import config, foreign_choices, groups
from evorl.cli.foreign_words import ENVIRONMENT, KEYS, OTHERS, PHRASES, SWITCHES, translate
from evorl.cli.hints import below
from evorl.run import main


@pytest.fixture(scope="module", autouse=True)
def files_are_read_once() -> Iterator[None]:
    with config.opened() as hydra, pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "opened", lambda *_: nullcontext(hydra))
        yield


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a refusal, which writes nothing."""
    assert main(words) == 2
    assert not [*Path().iterdir()]
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and "Traceback" not in out
    return err.strip()


@pytest.mark.parametrize("word", ENVIRONMENT)
def test_an_environment_is_a_gymnasium_id_or_a_world(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = f"evorl: {word}: unknown key; in evorl this is "
    assert answer(capsys, f"{word}=CartPole-v1") == asked + "mdp=gymnasium mdp.id=CartPole-v1"
    assert answer(capsys, f"+{word}=ALE/Pong-v5") == asked + "mdp=gymnasium mdp.id=ALE/Pong-v5"
    assert answer(capsys, f"{word}=pong", "rl=ppo") == asked + "mdp=pong"


@pytest.mark.parametrize("word", [*KEYS][::8])
def test_a_word_is_answered_with_the_key_and_the_value(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    value = "PPO" if KEYS[word] == "rl" else "7"
    assert answer(capsys, f"{word}={value}").endswith(f"in evorl this is {KEYS[word]}={value.lower()}")


def test_every_word_has_its_key() -> None:
    """What the line above is made of."""
    for word, key in KEYS.items():
        value = "PPO" if key == "rl" else "7"
        assert translate(word, value, []) == f"{key}={value.lower()}"


def test_the_keys_named_exist() -> None:
    with config.opened() as hydra:
        composed = config.resolved(config.compose(hydra, ["mdp=cartpole", "rl=ppo"]))
    for key in {*KEYS.values()}:
        inside = composed
        for name in key.split("."):
            assert name in inside, key
            inside = inside[name]


def test_none_of_the_words_is_a_key_of_evorl() -> None:
    with config.opened() as hydra:
        keys = {*config.resolved(config.compose(hydra, []))}
    words = {*KEYS, *OTHERS, *PHRASES, *SWITCHES, *ENVIRONMENT}
    assert words.isdisjoint(keys)
    assert words.isdisjoint(path.name for path in (ROOT / "conf").iterdir())


@pytest.mark.parametrize(
    "words", [("--env", "CartPole-v1"), ("--env-id=CartPole-v1",), ("--env_id", "CartPole-v1", "rl=ppo")]
)
def test_dashed_options_too(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, *words).endswith("in evorl this is mdp=gymnasium mdp.id=CartPole-v1")


def test_dashed_keys_take_the_next_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--total-timesteps", "5000").endswith("in evorl this is budget.steps=5000")


def test_values_of_a_sweep_stay_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--multirun", "lr=1e-3,1e-4").endswith("in evorl this is rl.lr=1e-3,1e-4")


def test_other_words_are_not_translated() -> None:
    assert translate("rl.lr", "1", []) is None
    assert translate("seed", "1", []) is None


# ------------------------------------------------------------------ below a group


def keys_of_files(group: str) -> set[str]:
    with config.opened() as hydra:
        return {
            str(key)
            for one in groups.options(hydra, group)
            for file in groups.files_of(hydra, group, one)
            for key in file
        }


@pytest.mark.parametrize("group", ["rl", "ec", "mdp"])
def test_the_keys_of_others_exist_in_some_choice(group: str) -> None:
    there = keys_of_files(group)
    named = {key.split(".")[1] for key in OTHERS.values() if key.startswith(f"{group}.")}
    assert named <= there


@pytest.mark.parametrize(("word", "key"), KEYS.items())
def test_the_same_words_below_rl(word: str, key: str) -> None:
    meant = "" if key == f"rl.{word}" else f"; did you mean {key}?"
    assert below(f"rl.{word}", "7", lambda key: True) == meant


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rl.policy=MlpPolicy",), "rl.policy: unknown key; in evorl this is rl.net (rl.net.hidden=[64,64] "),
        (("rl.policy_kwargs.net_arch=[8]",), "rl.policy_kwargs.net_arch: unknown key; did you mean rl.net.hidden?"),
        (("+rl.n_steps=8",), "rl.n_steps: unknown key; did you mean rl.horizon?"),
        (("rl=dqn", "rl.batch_size=8"), "rl.batch_size: unknown key; did you mean rl.batch?"),
        (("rl=dqn", "batch_size=8"), "batch_size: unknown key; in evorl this is rl.batch=8"),
        (("rl=sac", "rl.ent_coef=0.1"), "rl.ent_coef: unknown key; did you mean rl.alpha?"),
        (("rl=dqn", "rl.buffer_size=8"), "rl.buffer_size: unknown key; did you mean rl.capacity?"),
        (("rl=a2c", "rl.clip_range=8"), "rl.clip_range: unknown key of rl=a2c; did you mean rl.clip of rl=impact, "),
        (("ec=sga", "ec.pop_size=8"), "ec.pop_size: unknown key; did you mean ec.population?"),
        (("ec=pbt", "ec.n_agents=8"), "ec.n_agents: unknown key; did you mean ec.population?"),
        (("ec.pop_size=8",), "ec.pop_size: unknown key of ec=none; did you mean ec.population of ec=acem_rl, "),
        (("mdp=cartpole", "mdp.max_episode_steps=8"), "mdp.max_episode_steps: unknown key; did you mean mdp.time_"),
        (("mdp.env_id=Acrobot-v1",), "mdp.env_id: unknown key; in evorl this is mdp=gymnasium mdp.id=Acrobot-v1"),
        (("rl.track=true",), "rl.track: unknown key; in evorl this is record.wandb=online"),
        (("track=true",), "track: unknown key; in evorl this is record.wandb=online"),
        (("track=false",), "track: unknown key; in evorl this is record.wandb=disabled"),
        (("cuda=true",), "cuda: unknown key; in evorl this is device=cuda"),
        (("num_workers=8",), "num_workers: unknown key; in evorl this is cluster=processes cluster.workers=8"),
        (("anneal_lr=true",), "anneal_lr: unknown key; in evorl this is rl.lr={start: 3e-4, end: 0, steps: 1e6}"),
        (("--track", "seed=3"), "--track: unknown option; in evorl this is record.wandb=online"),
        (("rl=dqn", "rl.per=true"), "rl.per: unknown key; in evorl this is rl.sampling=prioritized"),
        (("rl=dqn", "rl.prioritized=true"), "rl.prioritized: unknown key; this is rl.sampling=prioritized now"),
        (("rl=r2d2", "rl.prioritized=false"), "rl.prioritized: unknown key; this is rl.sampling=uniform now"),
        (("rl=dqn", "+rl.prioritized=true"), "rl.prioritized: unknown key; this is rl.sampling=prioritized now"),
        (("ec=cem_rl", "ec.tell_warm_up=true"), "ec.tell_warm_up: unknown key; this is ec.warm_up_actions=told now"),
        (("ec=aes_rl", "ec.tell_warm_up=false"), "ec.tell_warm_up: unknown key; this is ec.warm_up_actions=uniform n"),
        (("rl=dqn", "rl.alpha=0.5"), "rl.alpha: unknown key; this is rl.replay.prioritized.alpha=0.5 now"),
        (("rl=dqn", "rl.beta.end=1"), "rl.beta.end: unknown key; this is rl.replay.prioritized.beta.end=1 now"),
        (("rl=r2d2", "rl.beta.start=1"), "rl.beta.start: unknown key; this is rl.replay.prioritized.beta.start=1 now"),
        (("rl=sac", "rl.attentive.anneal=9"), "rl.attentive.anneal: unknown key; this is rl.replay.attentive.anneal=9"),
        (("rl=vtrace", "rl.replay.queue.share=1"), "rl.replay.queue.share: unknown key; this is rl.sampling.queue=1 n"),
        (("rl=impact", "rl.replay.elite={share:1}"), "rl.replay.elite.share: unknown key; this is rl.sampling.elite=1"),
        (("rl=ppo", "rl.prioritized=true"), "rl.prioritized: unknown key"),
        (("rl._target_=mine:Loss", "trust=[mine]"), "rl._target_: a class has a dot before its name here: mine.Loss"),
    ],
)  # fmt: skip
def test_what_to_type_instead(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, *words).startswith(f"evorl: {said}")


def test_an_existing_run_understands_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path.parent / f"{tmp_path.name}-run"
    words = ("+debug=tiny", "mdp=cartpole", "budget.steps=256", "record.tensorboard=false", f"hydra.run.dir={run}")
    assert main(words) == 0
    capsys.readouterr()
    assert answer(capsys, f"resume={run}", "rl.n_steps=8") == "evorl: rl.n_steps: unknown key; did you mean rl.horizon?"


# ------------------------------------------------------------------ choices


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("rl=rainbow", f"{foreign_choices.RAINBOW}"),
        ("rl=IMPALA", "rl=vtrace"),
        ("rl=ape_x", "+experiment=ape_x"),
        ("rl=pbt", "ec=pbt"),
        ("ec=ppo", "rl=ppo"),
        ("ec=cmaes", "ec=cma_es"),
        ("mdp=breakout", "mdp=atari mdp.game=breakout"),
        ("mdp=ALE/SpaceInvaders-v5", "mdp=atari mdp.game=space_invaders"),
        ("mdp=BreakoutNoFrameskip-v4", "mdp=atari_noframeskip mdp.game=breakout"),
        ("mdp=mujoco", "mdp=ant or ant_v4 or halfcheetah or "),
        ("mdp=box2d", "mdp=bipedalwalker or lunarlander or lunarlandercontinuous or marvin"),
        ("mdp=classic_control", "mdp=acrobot or cartpole or mountaincar or pendulum"),
        ("mdp=CartPole-v1", "mdp=cartpole"),
        ("mdp=Blackjack-v1", "mdp=gymnasium mdp.id=Blackjack-v1"),
        ("mdp=my_envs.grid.GridWorld", "mdp=gymnasium mdp.id=my_envs.grid:GridWorld 'trust=[my_envs]'"),
    ],
)
def test_names_that_are_no_choice(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    group, _, name = word.partition("=")
    assert answer(capsys, word).startswith(f"evorl: {group}: no choice '{name}'; in evorl this is {said}")


@pytest.mark.parametrize(
    "said", dict.fromkeys([*foreign_choices.ALGORITHMS.values(), *(f"mdp={one}" for one in foreign_choices.CLASSIC)])
)
def test_what_is_said_of_choices_can_be_composed(said: str) -> None:
    with composed_once(), config.opened() as hydra:
        for words in said.split(", or on Atari games "):
            config.resolved(config.compose(hydra, words.split()))


def test_a_folder_of_experiments_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "+experiment=marvin").endswith(
        "marvin is a folder; in it are: marvin/cartpole, marvin/original, marvin/ours"
    )


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("name", ["gpu", "GPU", "cuda:0"])
def test_a_gpu_is_cuda(
    name: str, gpu: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from evorl import evaluate

    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    said = "did you mean cuda?" if gpu else "a GPU is device=cuda, and here is none: device=cpu"
    line = f"evorl: device: expected one of auto, cpu, cuda, got '{name}'; {said}"
    assert answer(capsys, f"device={name}") == line
    assert evaluate.main(["run=x", f"device={name}"]) == 2
    assert capsys.readouterr().err == f"{line}\n"


@pytest.mark.parametrize("words", [(), ("seed=3",), ("--multirun", "seed=1,2")])
def test_any_gymnasium_world_needs_its_id(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    line = answer(capsys, "mdp=gymnasium", *words)
    assert line.startswith("evorl: mdp.id: a value is needed, such as mdp.id=LunarLander-v3, or of your own: ")


def test_a_class_with_a_dot(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "mdp=gymnasium", "mdp.id=my_envs.grid.GridWorld") == (
        "evorl: mdp.id: my_envs.grid.GridWorld is not registered with gymnasium; a class has a colon before its name: "
        "mdp.id=my_envs.grid:GridWorld 'trust=[my_envs]'"
    )
