"""CleanRL's td3_continuous_action.py, unchanged, as a worker (see `old_gym`).

Runs in the peers' environment: python cleanrl_td3.py SETTINGS, where SETTINGS is JSON: world (a gymnasium id) and
threads (of torch).
"""

from __future__ import annotations

import json
import sys

from old_gym import run

STARTS = 32  # steps with random actions, before the first gradient step

if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    words = ["--env-id", settings["world"], "--learning-starts", str(STARTS)]
    run("td3_continuous_action.py", words, settings["threads"])
