"""``cluster=ray``: workers in processes that Ray places, on this machine or on others.

Here: the actors that hold workers, placement, joining a cluster, a Ray of the run's own.
Not here: messages (`evorl.cluster.transport`), calls and replacement of workers (`evorl.cluster.workers`).
Start reading: `evorl.cluster.ray.launcher`, then `evorl.cluster.ray.session`.
"""

import os
import sys

if "ray" not in sys.modules:
    # A driver of which both the parent and the raylet are gone ends without a word, unless it takes a living process
    # for its raylet. A parent is gone after nohup, for example. Ray reads the variable once, when it is imported.
    os.environ["RAY_RAYLET_PID"] = str(os.getpid())

from evorl.cluster.ray.cluster import Ray as Ray
