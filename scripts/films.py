"""Draw the films of docs/images/films anew, by kept policies: python scripts/films.py [POLICY...]

Each is the beginning of the median episode of the evaluation with which the policy was kept.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from evorl.api.runs import load
from evorl.mdp.core import Array
from evorl.reproduction.kept_policies import find
from evorl.rl.films import chosen, film

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "films"
POLICIES = (
    "suite/ppo_pong", "suite/a2c_lunarlander", "suite/a3c_cartpole", "suite/reinforce_cartpole",
    "suite/td3_halfcheetah", "suite/sac_pendulum", "suite/dqn_lunarlander", "elite_replay/vector_pong_uniform",
    "suite/impact_cartpole", "suite/r2d2_cartpole", "suite/ddpg_pendulum",
    "suite/openai_es_swimmer", "suite/cma_es_cartpole", "suite/pbt_pong", "lamarckian/nsga2_lazy",
    "aes_rl/aes_rl_halfcheetah", "elite_replay/duel_uniform",
)  # fmt: skip
SECONDS, FPS, WIDTH = 6, 12, 200
PALETTE = "split[a][b];[a]palettegen=max_colors=48[p];[b][p]paletteuse=dither=none:diff_mode=rectangle"


def path_of(name: str) -> Path:
    """Of the film of a policy ``PAPER/NAME``."""
    return FOLDER / f"{name.replace('/', '-')}.gif"


def frames(name: str) -> tuple[Iterator[Array], float]:
    """The pictures of the film, and how many a second there are."""
    policy, kept = load(f"zoo/{name}").policy, find(name).evaluation
    episodes, seed = kept["episodes"], kept["seed"]
    number = chosen(["median"], policy.evaluate(episodes, seed))["median"]
    made = film(policy.learner, policy.world, seed, number, episodes)
    return islice(made.frames, round(SECONDS * made.fps)), made.fps


def write(path: Path, pictures: Iterator[Array], fps: float) -> None:
    """As a GIF of few colours, frames and pixels."""
    every = np.stack([*pictures])
    height, width = every.shape[1:3]
    source = f"-f rawvideo -pix_fmt rgb24 -video_size {width}x{height} -framerate {fps} -i -"
    kind = "neighbor" if width <= WIDTH else "area"  # small pictures of games keep their edges
    filters = f"fps={FPS},scale={WIDTH}:-1:flags={kind},{PALETTE}"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *source.split(), "-vf", filters, path]
    subprocess.run(command, input=every.tobytes(), check=True)


def main(names: Sequence[str]) -> None:
    for name in names or POLICIES:
        write(path_of(name), *frames(name))
        print(f"{path_of(name)}  {path_of(name).stat().st_size >> 10} KB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
