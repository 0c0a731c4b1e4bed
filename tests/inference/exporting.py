"""What the tests of exported policies share: learners of every kind with weights that decide, and their files."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from harness import experiment_of

from evorl.inference.check import Compared
from evorl.inference.file import Format, PolicyFile, description, program
from evorl.inference.godot import GodotModule
from evorl.inference.module import PolicyModule
from evorl.inference.unity import UnityModule
from evorl.mdp.core import Spec, World, heads
from evorl.nets.distributions import draw_noise, noise_size
from evorl.nets.policy import Net
from evorl.rl.network_learner import NetworkLearner
from evorl.rl.ppo import PPO
from evorl.training.train import spec


def learner_for(*words: str) -> tuple[NetworkLearner[Any], World]:
    """The learner of these words, as if it had learned: its weights are moved, and it has seen inputs."""
    experiment = experiment_of(*words)
    world = experiment.mdp.evaluation_world()
    learner: Any = experiment.rl.learner(spec(world), 1, torch.device("cpu"))
    generator = torch.Generator().manual_seed(7)
    learner.theta.add_(0.05 * torch.randn(learner.theta.shape, generator=generator))
    if learner.moments is not None:
        rows = [torch.randn(200, *observation.shape, generator=generator) for observation in learner.spec.inputs]
        learner.moments.update(tuple(3 * x + 1 for x in rows))
    return learner, world


def module_of(learner: NetworkLearner[Any], form: Format, deterministic: bool = True) -> PolicyModule:
    if form == "unity":
        return UnityModule(learner)
    return GodotModule(learner) if form == "godot" else PolicyModule(learner, deterministic)


def content_of(module: PolicyModule, form: Format, world: World) -> bytes:
    return PolicyFile(module, form).content(description(module, form, world, {}))


def played(
    words: tuple[str, ...], form: Format = "onnx", deterministic: bool = True, episodes: int = 4, steps: int = 200
) -> Compared:
    """Whole episodes of a file beside its policy; ``steps``: where they are cut."""
    learner, world = learner_for(*words)
    module = module_of(learner, form, deterministic)
    run = program(content_of(module, form, world), module, form)
    compared = Compared(learner, module, run)
    compared.play_games(capped(world, steps), 3, episodes, steps, deterministic=deterministic)
    return compared


def compared_on(spec: Spec, form: Format = "onnx", deterministic: bool = True, **net: Any) -> Compared:
    """A file beside its policy for observations, masks and noise of all kinds; a fifth of the episodes begin anew."""
    learner = PPO(net=Net(**net)).learner(spec, 1, torch.device("cpu"))
    module, random = module_of(learner, form, deterministic), np.random.default_rng(11)
    content = PolicyFile(module, form).content(description(module, form, experiment_of("mdp=pong").mdp, {}))
    compared, rows = Compared(learner, module, program(content, module, form)), 6
    carry, start = compared.carry(rows), torch.ones(rows, dtype=torch.bool)
    for _ in range(20):
        inputs = tuple(
            torch.from_numpy((100 * random.random((rows, *seen.shape))).astype(seen.dtype)) for seen in spec.inputs
        )
        legal = torch.from_numpy(random.random((rows, sum(heads(spec.action)))) < 0.7) if spec.masked else None
        noise = np.zeros((rows, noise_size(spec.action)), np.float32)
        noise = noise if deterministic else draw_noise(spec.action, random, (rows,))
        decision = compared.act(inputs, legal, torch.from_numpy(noise), carry, None if carry is None else start)
        carry, start = decision.carry, torch.from_numpy(random.random(rows) < 0.2)
    return compared


def capped(world: World, steps: int) -> World:
    """The world with short episodes, where it has a limit to lower."""
    try:
        return world.capped(steps)
    except Exception:  # every episode of this world is short
        return world
