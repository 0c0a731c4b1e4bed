"""The floor of a gradient step of DQN with the Nature CNN: the network's work and nothing else, as a worker.

Two forward passes (one for the targets), one backward pass and a step of Adam, on a minibatch that is there. Runs in
the peers' environment: python bare_nature.py SETTINGS, where SETTINGS is JSON: batch, actions and threads.
"""

from __future__ import annotations

import json
import sys

import torch
from common import serve
from torch import Tensor, nn

STEPS = 16
"""Gradient steps that count as one update, each as an environment step."""


def network(actions: int) -> nn.Module:
    layers = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions),
    )  # fmt: skip
    return layers.to(memory_format=torch.channels_last)  # the faster layout here


def main(batch: int, actions: int, threads: int) -> None:
    torch.set_num_threads(threads)
    online, target = network(actions), network(actions)
    adam = torch.optim.Adam(online.parameters(), fused=True)
    pictures = torch.randint(0, 256, (batch, 4, 84, 84), dtype=torch.uint8).contiguous(
        memory_format=torch.channels_last
    )

    def loss() -> Tensor:
        inputs = pictures.float().div_(255)
        with torch.no_grad():
            values = target(inputs).amax(1)
        return nn.functional.smooth_l1_loss(online(inputs)[:, 0], values)

    def update() -> int:
        for _ in range(STEPS):
            adam.zero_grad()
            loss().backward()
            adam.step()
        return STEPS

    serve(update, "torch")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
