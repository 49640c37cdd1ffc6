"""Runs on a Dask cluster, through the executor of its client. Needs the extra `dask`.

Workers read traces from the same paths as the client, on a shared file system, and send back the
result files, which the client writes.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from stowplan.experiments.experiment_stopped import ExperimentStopped
from stowplan.experiments.plan.plan_inputs import RunTask, versions
from stowplan.experiments.runner.run_worker import RunOutcome, run_task
from stowplan.inputs.input_error import InputError

DASK = "--dask"
CONNECT_S, WORKERS_S = 10.0, 60.0
"""How long to wait for the scheduler, and for the first worker."""
CHECK_S = 5.0
"""While no run ends the connection is looked at so often."""
PORT_MAX = 65535
RETRIES = 1
"""Of a run whose worker died."""
_ONE_RUN = threading.Lock()


_ADDRESS = re.compile(r"(?:[a-z]+://)?(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})/?")


def run_on_dask(
    tasks: Sequence[RunTask],
    address: str,
    timeout_s: float | None,
    on_outcome: Callable[[RunOutcome], None],
) -> None:
    """Run tasks, and call on_outcome in this thread for each that ended.

    Raises InputError where Dask is not installed, the scheduler does not answer, or the workers
    have other versions; DaskSchedulerLost where it ends meanwhile.
    """
    check_dask_settings(address, timeout_s)
    distributed = _distributed()
    with _quiet_client():
        client = _connected(address, distributed)
        with client:
            check_workers(client, address, distributed)
            _run(client, tasks, on_outcome, address, distributed)


class DaskSchedulerLost(ExperimentStopped):
    """The scheduler ended, or was restarted and forgot the runs, before all had ended."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{DASK}: {address}: the Dask scheduler was lost")


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Without what Dask's client logs: a traceback for each lost connection, which is reported."""
    logger = logging.getLogger("distributed.client")
    # Importing distributed sets its own level.
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _connected(address: str, distributed: Any) -> Any:
    """A client of the scheduler; raises InputError."""
    try:
        return distributed.Client(
            address, timeout=CONNECT_S, set_as_default=False, direct_to_workers=False
        )
    # A version of another protocol ends the connection in several ways.
    except (OSError, ValueError, TypeError, ImportError, KeyError) as problem:
        got = f"no Dask scheduler there ({_one_line(problem)})"
        own = f"dask.distributed {distributed.__version__}"
        wanted = f"the address of a running one, such as tcp://HOST:8786; this is {own}"
        raise InputError(DASK, address, got, wanted) from None


def check_dask_settings(address: str, timeout_s: float | None) -> None:
    """Raise InputError for settings that cannot work, and where Dask is not installed; nothing is
    connected."""
    if timeout_s is not None:
        raise InputError(DASK, "--timeout", "both", "one of them: Dask has no limit for a task")
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found[1]) > PORT_MAX:
        raise InputError(DASK, address, "no address", "one such as tcp://HOST:8786")
    _distributed()


def _distributed() -> Any:
    """The module; raises InputError."""
    try:
        return import_module("distributed")
    except ImportError as problem:
        wanted = "dask.distributed: pip install 'stowplan[dask]'"
        raise InputError(DASK, "", f"not installed ({problem})", wanted) from None


def check_workers(client: Any, address: str, distributed: Any) -> None:
    """Raise InputError unless a worker is there and all have the versions of this process."""
    found = client.get_versions()
    theirs = found["scheduler"]["packages"].get("distributed")
    if theirs != distributed.__version__:
        got = f"the scheduler has dask.distributed {theirs}"
        raise InputError(DASK, address, got, f"{distributed.__version__}, as here")
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError:
        got = f"no worker in {WORKERS_S:g} s"
        raise InputError(DASK, address, got, "at least one worker") from None
    for worker, answer in client.run(versions, on_error="return").items():
        if isinstance(answer, Exception):
            got = f"stowplan cannot be imported ({_one_line(answer)})"
            raise InputError(DASK, worker, got, "the same installation as here")
        if answer != versions():
            got, own = (
                ", ".join(f"{name} {one[name]}" for name in one) for one in (answer, versions())
            )
            raise InputError(DASK, worker, got, f"{own}, as here")


def _run(
    client: Any,
    tasks: Sequence[RunTask],
    on_outcome: Callable[[RunOutcome], None],
    address: str,
    distributed: Any,
) -> None:
    ended: queue.SimpleQueue[tuple[str, Future[RunOutcome]]] = queue.SimpleQueue()
    waiting: dict[str, Future[RunOutcome]] = {}
    executor = client.get_executor(retries=RETRIES, pure=False)
    try:
        for task in tasks:
            _check_connection(client, address)
            future = executor.submit(run_alone, task)
            waiting[task.key] = future
            future.add_done_callback(lambda done, key=task.key: ended.put((key, done)))
        while waiting:
            try:
                key, future = ended.get(timeout=CHECK_S)
            except queue.Empty:
                _check_connection(client, address)
                continue
            # The result is freed on the cluster with the last reference.
            del waiting[key]
            if future.cancelled():
                # A lost connection, and a cluster that is restarted, cancel all tasks.
                raise DaskSchedulerLost(address)
            on_outcome(_outcome_of(key, future, distributed))
            del future
    finally:
        for future in waiting.values():
            future.cancel()
        executor.shutdown(wait=False)


def run_alone(task: RunTask) -> RunOutcome:
    """`run_task`, one at a time in a process: a run loads plugins as modules and compiles kernels,
    which threads share."""
    with _ONE_RUN:
        return run_task(task)


def _check_connection(client: Any, address: str) -> None:
    """Raise DaskSchedulerLost without a connection: the client drops the tasks of a lost one."""
    if client.status != "running":
        raise DaskSchedulerLost(address)


def _outcome_of(key: str, future: Future[RunOutcome], distributed: Any) -> RunOutcome:
    """How a run that was not cancelled ended."""
    problem = future.exception()
    if problem is None:
        return future.result()
    if isinstance(problem, distributed.KilledWorker):
        return RunOutcome(key, f"its worker died: {_one_line(problem)}")
    # A worker that joined later, for one, and cannot import what the task needs.
    text = f"{type(problem).__name__}: {_one_line(problem)}"
    return RunOutcome(key, text, "".join(traceback.format_exception(problem)))


def _one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__
