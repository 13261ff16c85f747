"""The same tasks on a Ray cluster: rows stream back, lost workers are replaced."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from types import ModuleType
from typing import Any  # ray's handles, and rows

import torch

from eqsat.compare.runner import TRIES, Found, Work
from eqsat.compare.task import Failure, Task
from eqsat.observe import first_line

LOCAL = "local"


def on_ray(
    tasks: Sequence[Task], work: Work, address: str, jobs: int, timeout: float
) -> Generator[Found]:
    """Yields each task with its row, as they come, or with the reason why it has none.

    `address` is that of a running cluster ("auto" for the one of this machine), or "local" for one
    of `jobs` workers that ends with the iterator. Every node needs the same eqsat and torch, and
    sees the programs under the same paths. A task whose worker is lost is tried once more; one
    that takes longer than `timeout` seconds is cancelled.

    Raises ValueError where ray is not installed or there is no cluster at the address.
    """
    ray = _ray()
    started = not ray.is_initialized()
    if started:
        _connect(ray, address, jobs)
    try:
        yield from _stream(ray, tasks, work, timeout)
    finally:
        if started:
            ray.shutdown()


def _ray() -> ModuleType:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ValueError(
            "--ray needs the package ray: pip install 'eqsat[ray]' brings it"
        ) from error
    return ray


def _connect(ray: Any, address: str, jobs: int) -> None:
    """Joins the cluster, or starts one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == LOCAL:
            ray.init("local", num_cpus=jobs, include_dashboard=False, **quiet)
        else:
            ray.init(address, **quiet)
    except Exception as error:  # ray raises many kinds
        raise ValueError(f"no Ray cluster at {address!r}: {first_line(error)}") from error


def _stream(ray: Any, tasks: Sequence[Task], work: Work, timeout: float) -> Generator[Found]:
    """The rows as they come; as many tasks are under way as the cluster has processors."""
    remote = ray.remote(num_cpus=1, max_retries=0)(_one)
    slots = max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting, tries = list(tasks), dict.fromkeys(tasks, 0)
    running: dict[Any, tuple[Task, float]] = {}
    while waiting or running:
        while waiting and len(running) < slots:
            task = waiting.pop(0)
            running[remote.remote(work, task)] = task, time.monotonic() + timeout
        nearest = min(deadline for _, deadline in running.values())
        done, _ = ray.wait([*running], timeout=max(0.0, nearest - time.monotonic()))
        now = time.monotonic()
        for handle in done or [h for h, (_, deadline) in running.items() if deadline <= now]:
            task, _ = running.pop(handle)
            found = _answer(ray, handle, bool(done))
            tries[task] += isinstance(found, Failure)
            if isinstance(found, Failure) and tries[task] < TRIES:
                waiting.insert(0, task)
            else:
                yield task, found


def _answer(ray: Any, handle: Any, done: bool) -> Any:
    """The row that a task came to, or why there is none."""
    if not done:
        ray.cancel(handle, force=True)
        return Failure(f"it took longer than the time limit, {TRIES} times")
    try:
        return ray.get(handle)
    except ray.exceptions.RayError as error:
        return Failure(f"its worker was lost, {TRIES} times: {first_line(error)}")


def _one(work: Work, task: Task) -> Any:
    """The row of a task, in a worker."""
    torch.set_num_threads(1)
    return work(task)
