"""Choose the worker for the next call, in a time that does not grow with the number of workers."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Schedulable(Protocol):
    """A worker that can be given calls."""

    @property
    def number(self) -> int: ...

    @property
    def assigned(self) -> int:
        """Number of calls that it has not answered."""
        ...

    @property
    def capacity(self) -> int:
        """Number of calls that it may have assigned; 0 while it cannot take any."""
        ...


T = TypeVar("T", bound=Schedulable)


class Scheduler(Generic[T]):
    """Workers with free capacity, by the number of their assigned calls."""

    def __init__(self, max_capacity: int) -> None:
        """``max_capacity``: upper limit of a worker's capacity."""
        self._by_load: list[dict[int, T]] = [{} for _ in range(max_capacity)]
        self._load_of: dict[int, int] = {}

    def update(self, worker: T) -> None:
        """Update a worker whose assigned calls or capacity have changed."""
        former, load = self._load_of.pop(worker.number, None), worker.assigned
        if former is not None:
            del self._by_load[former][worker.number]
        if load < worker.capacity:
            self._load_of[worker.number] = load
            self._by_load[load][worker.number] = worker

    def has_idle(self) -> bool:
        """Return whether a worker has no calls."""
        return bool(self._by_load[0])

    def least_loaded(self) -> T | None:
        """Return a worker with the fewest calls, of several the one updated first; None if none has capacity."""
        return next((next(iter(workers.values())) for workers in self._by_load if workers), None)
