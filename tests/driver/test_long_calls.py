"""A long `handle` call delays neither lease, health nor requests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from stowplan.assembly.deciders import Deciders
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.leader_election import LeaderElectionConfig
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.http.listen_address import ListenAddress
from stowplan.driver.http.status_server import StatusServer
from stowplan.driver.live.configuration_files import read_configuration_files
from stowplan.driver.live.scheduler_server import SchedulerServer, SchedulerServerOptions
from tests.driver.deciders import default_deciders
from tests.driver.small_api import SmallApi
from tests.driver.test_live import GANGS

pytestmark = pytest.mark.slow

TERMS = LeaderElectionConfig(
    "kube-system", "stowplan", "one", duration_s=60.0, renew_s=40.0, retry_s=0.1
)
HELD_S_MAX = 40.0
"""A call that nobody lets go is over after so long, and the test has failed."""


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


class Waiting(SchedulerServer):
    """Wrong: holds sessions in the loop."""

    def _may_run_session(self) -> bool:
        return False


class Patient:
    """A scheduler in a thread of its own, whose machine can be held up, until `released`. url: of
    its health."""

    def __init__(self, api: SmallApi, deciders: Deciders, kind: type[SchedulerServer]) -> None:
        self.url = ""
        self.is_held_up = False
        self.released = threading.Event()
        options = SchedulerServerOptions(
            ClientConfig(api.url, "test"), TERMS, seed=1, engine="walk"
        )
        self.live = kind(deciders, options, self._beside)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.live.run()))

    @asynccontextmanager
    async def _beside(self, live: SchedulerServer) -> AsyncIterator[None]:
        async with StatusServer(live, ListenAddress("127.0.0.1", 0)) as face:
            self.url = f"http://127.0.0.1:{face.port}/healthz"
            yield

    def slowed(
        self, call: Callable[..., Any], at_end: Callable[[], object] = lambda: None
    ) -> Callable[..., Any]:
        """What goes on until it is released when it is called first, and keeps the interpreter to
        itself as long as it lets one."""
        reported = False

        def slow(*arguments: Any) -> Any:
            nonlocal reported
            if not reported:
                reported = self.is_held_up = True
                ends = time.monotonic() + HELD_S_MAX
                while not self.released.is_set() and time.monotonic() < ends:
                    sum(range(2000))
                at_end()
                self.is_held_up = False
            return call(*arguments)

        return slow


@asynccontextmanager
async def patient(
    api: SmallApi, found: Deciders, kind: type[SchedulerServer] = SchedulerServer
) -> AsyncIterator[Patient]:
    one = Patient(api, found, kind)
    one.thread.start()
    try:
        await api.until(lambda: one.live.is_synced and one.live.leadership.leads)
        yield one
    finally:
        one.live.stop()
        await asyncio.to_thread(one.thread.join)


def n_renewals(api: SmallApi) -> int:
    return sum(1 for method, path, _ in api.writes if method == "PUT" and "/leases/" in path)


async def looked_after(
    api: SmallApi, one: Patient, until: Callable[[int], bool] = lambda n: True
) -> None:
    """Ask for the health while the machine is held up, and let it go when three answers have come,
    the lease has been renewed three times, and that holds of the number of renewals."""
    await api.until(lambda: one.is_held_up)
    before, n_answers, n = n_renewals(api), 0, 0
    async with aiohttp.ClientSession() as session:
        while not (n_answers >= 3 and n >= 3 and until(n)):
            async with session.get(one.url) as answer:
                assert answer.status == 200
            assert one.is_held_up
            n_answers, n = n_answers + 1, n_renewals(api) - before
            await asyncio.sleep(0.05)
    one.released.set()


def test_health_and_lease_continue_during_a_long_handle_call() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1")
            async with patient(api, default_deciders("stowplan")) as one:
                scheduler = one.live.scheduler
                scheduler.handle = one.slowed(scheduler.handle)  # type: ignore[method-assign]
                api.pod("web")
                await looked_after(api, one)
                assert one.live.leadership.leads
                await api.until(lambda: all(api.placed().values()))

    run(steps())


def test_the_next_session_counts_from_the_end_of_the_last(tmp_path: Path) -> None:
    """Its beginning would let the next one follow at once."""

    async def steps() -> None:
        config = tmp_path / "gangs.yaml"
        config.write_text(GANGS)
        found, _ = read_configuration_files([str(config)])
        async with SmallApi({"podgroups", "queues", "priorityclasses"}) as api:
            api.node("n1", cpu="4")
            async with patient(api, found) as one:
                (sessions,) = one.live.scheduler.lanes.batch
                ended: list[float] = []
                decider: Any = sessions.decider
                decider.run_session = one.slowed(
                    decider.run_session, lambda: ended.append(monotonic_ns() / 1e9)
                )
                api.pod("alone", scheduler="kube-batch")
                # For longer than a period.
                ends = time.monotonic() + 1.5 * decider.period_s
                await looked_after(api, one, lambda _: time.monotonic() > ends)
                await api.until(lambda: bool(ended) and not one.is_held_up)
                await api.until(lambda: sessions.due / 1e9 >= ended[0] + decider.period_s)

    run(steps())


async def taken_in(tmp_path: Path, kind: type[SchedulerServer]) -> bool:
    """Whether what a watch shows was taken in while a session was held."""
    config = tmp_path / "gangs.yaml"
    config.write_text(GANGS)
    found, _ = read_configuration_files([str(config)])
    async with SmallApi({"podgroups", "queues", "priorityclasses"}) as api:
        api.node("n1", cpu="4")
        meta = {"apiVersion": "scheduling.sigs.dev/v1alpha2", "metadata": {"name": "default"}}
        api.put("queues", meta | {"spec": {"weight": 1}})
        async with patient(api, found, kind) as one:
            (sessions,), informers = one.live.scheduler.lanes.batch, one.live.informers
            assert informers is not None
            pods = next(one for one in informers.informers if one.resource.plural == "pods")
            decider: Any = sessions.decider
            n_known: list[int] = []
            decider.run_session = one.slowed(decider.run_session, lambda: n_known.append(len(pods)))
            api.pod("alone", scheduler="kube-batch")
            await api.until(lambda: one.is_held_up)
            api.pod("late", scheduler="kube-batch")
            # The wrong one never takes it in.
            await looked_after(api, one, lambda n: len(pods) == 2 or (kind is Waiting and n > 20))
            await api.until(lambda: all(api.placed().values()))
            return n_known == [2]


def test_requests_and_watches_go_on_while_a_session_is_held(tmp_path: Path) -> None:
    async def steps() -> None:
        assert await taken_in(tmp_path, SchedulerServer)

    run(steps())


def test_a_loop_that_waits_for_sessions_is_caught(tmp_path: Path) -> None:
    async def steps() -> None:
        assert not await taken_in(tmp_path, Waiting)

    run(steps())
