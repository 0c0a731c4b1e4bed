"""``cluster=ray``: workers in processes that Ray places, on this machine or on others.

Here: the actors that hold workers, placement, joining a cluster, a Ray of the run's own.
Not here: messages (`evorl.cluster.transport`), calls and replacement of workers (`evorl.cluster.workers`).
Start reading: `evorl.cluster.ray.launcher`, then `evorl.cluster.ray.session`.
"""

from evorl.cluster.ray.cluster import Ray as Ray
