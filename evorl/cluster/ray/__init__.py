"""TODO."""

from evorl.cluster.ray.cluster import Ray as Ray
