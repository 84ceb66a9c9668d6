"""The demo from its first process to its verdict.

1. A server starts; two networks stand before it, a bad one for the writers and a milder one for Spark.
2. Producers of every face write, a Spark driver runs the pipelines, and the striker kills by the plan. All at once.
3. When the last producer has ended, a closing payment ends the trading day; Spark comes to the end of everything.
4. What must have come out is worked out from the ledgers, and the audit compares. The server stops, and `verify`
   rebuilds the log from its journal.

When the run ends, well or badly, or is interrupted or told to end (SIGINT, SIGTERM, SIGHUP), nothing that was started
stays: no process, and no folder unless it is to be kept. After a kill -9 of the demo itself its processes end too, by
their `lifeline`; the folder `oncelog-demo-…` in the temporary directory stays, as nobody is left to remove it.
"""

import asyncio
import datetime
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console

from oncelog.client import AsyncClient
from oncelog.demo import driver, flows
from oncelog.demo.board import Board, Flow, Step, Tally
from oncelog.demo.expected import write_expected
from oncelog.demo.faces import FACES, shares_of
from oncelog.demo.faces import face as producing
from oncelog.demo.ledger_audit import audit_ledgers
from oncelog.demo.network import DRIZZLE, HOST, FaultyProxy
from oncelog.demo.orders import CLOSING, CLOSING_FACE, OPENING, PARTITIONS, PAYMENTS, TOPICS
from oncelog.demo.places import Places
from oncelog.demo.plan import Moment, Plan, Share, planned
from oncelog.demo.plant import FACE, LABEL
from oncelog.demo.processes import Process
from oncelog.demo.screen import shown
from oncelog.demo.server import ADVERTISED, PROTOCOLS, Server
from oncelog.demo.striker import Striker
from oncelog.demo.verdict import Verdict, show, verdict_of
from oncelog.demo.zones import HEAD_OFFICE, Zones
from oncelog.errors import OncelogError
from oncelog.pipelines.ledger import Ledger
from oncelog.pipelines.writers import Run, Writers

if TYPE_CHECKING:
    from oncelog.pipelines.audit_result import AuditResult

DEADLINE_S: Final = 600.0
DEADLINE_PER_SCALE_S: Final = 300.0
"""A run takes two minutes on two quiet cores, and must end on a machine that is four times slower. Beyond, it hangs."""

NETWORK_LOOK_S: Final = 0.25
"""As often as the screen is drawn."""

NOTE_ORDERS_EVERY_S: Final = 10.0
"""Where nobody can see the picture move, a line tells that it goes on."""

BeforeAudit = Callable[[Places, str], Awaitable[None]]
"""Given the folder and the address of the server."""


class DemoFailed(OncelogError):
    """Something that must not happen did, or took too long. Not the audit's verdict: that is a result."""


class NotShown(DemoFailed):
    """The run came to its end and the audit found no fault, but not all happened that it should have withstood.

    So it proves less than it claims. That is a failure of the demo, and says nothing against the log.
    """


async def _nothing(_places: Places, _url: str) -> None:
    """What happens before the audit: nothing. A test puts a fault here that the audit must find."""


def run_demo(
    seed: int,
    scale: float,
    report: Path,
    *,
    spark: bool = True,
    keep: bool = False,
    console: Console | None = None,
    before_audit: BeforeAudit = _nothing,
) -> Verdict:
    """The whole of it. Raises DemoFailed, and KeyboardInterrupt when it was interrupted or told to end.

    A fault that the audit found is in the verdict, also if beside it something planned did not happen.
    """
    plan = planned(seed, scale, shares_of(scale), spark=spark)
    places = Places(Path(tempfile.mkdtemp(prefix="oncelog-demo-")))
    console = console or Console()
    try:
        places.make()
        demo = Demo(plan, places, report.absolute(), console, before_audit)
        verdict = asyncio.run(_interruptible(demo.run()))
        if verdict.not_shown and verdict.audit.sound:
            show(verdict, console)
            raise NotShown(f"the run did not show what it should: {'; '.join(verdict.not_shown)}")
    except BaseException:
        if keep:
            console.print(f"kept: {places.folder}", soft_wrap=True)
        raise
    else:
        verdict.folder = str(places.folder) if keep else ""
        return verdict
    finally:
        if not keep:
            shutil.rmtree(places.folder)


async def _interruptible(run: Awaitable[Verdict]) -> Verdict:
    """A request to end is an interrupt, also when it does not come from the keyboard."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    told = False

    def end() -> None:
        nonlocal told
        told = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    try:
        return await run
    except asyncio.CancelledError:
        if told:
            raise KeyboardInterrupt from None
        raise


class Demo:
    """One run."""

    def __init__(self, plan: Plan, places: Places, report: Path, console: Console, before_audit: BeforeAudit) -> None:
        self._plan = plan
        self._places = places
        self._report = report
        self._console = console
        self._before_audit = before_audit
        self._server = Server(places.data)
        self._storms = {
            protocol: FaultyProxy(f"{plan.seed}/storm/{protocol}", self._server.port(protocol))
            for protocol in PROTOCOLS
        }
        self._drizzle = FaultyProxy(f"{plan.seed}/drizzle", self._server.port("http"), weather=DRIZZLE)
        self._server.settings["zone"] = HEAD_OFFICE
        self.board = self._board = _board(plan)
        self._zones = Zones(plan.seed, plan.scale, places, self._server.port("http"), self._board, self._mark)
        self._producers: dict[str, Process] = {}
        self._driver: Process | None = None
        self._flowed = asyncio.Event()
        self._audit: AuditResult | None = None

    @property
    def url(self) -> str:
        """Of the server, without a network in between."""
        return self._server.url

    async def run(self) -> Verdict:
        """From nothing to nothing."""
        deadline_s = DEADLINE_S + DEADLINE_PER_SCALE_S * self._plan.scale
        try:
            with shown(self._board, self._console):
                async with asyncio.timeout(deadline_s):
                    await self._go()
        except TimeoutError:
            raise DemoFailed(f"not done after {deadline_s:,.0f} s: something hangs ({self._where()})") from None
        except (OncelogError, OSError, BaseExceptionGroup) as error:
            if isinstance(cause := _first(error), OncelogError | OSError):
                raise DemoFailed(str(cause)) from error
            raise
        finally:
            await self.clean_up()
        assert self._audit is not None
        self._count_networks()
        return verdict_of(self._plan, self._board, self._audit, self._places, self._report)

    # --- the phases -----------------------------------------------------------------------------------------------

    async def _go(self) -> None:
        board = self._board
        striker = await self.start()
        if self._plan.spark:
            await self._run_with_spark(striker)
        else:
            await self._run_without_spark(striker)
        board.auditing.begin("the journal is rebuilt and compared with the index")
        await self._server.stop()
        await self._server.verify()
        await self._zones.stop()
        board.auditing.end("log, table and ledgers compared; the journal verified")

    async def _run_without_spark(self, striker: Striker) -> None:
        """The writers and their audit."""
        board = self._board
        async with asyncio.TaskGroup() as group:
            watching = (group.create_task(self._watch_networks()), group.create_task(self._note_orders()))
            await self.write(striker)
            await self.close_the_day()
            for task in watching:
                task.cancel()
        board.auditing.begin("the log is compared with the ledgers")
        board.tell("the audit begins")
        places, url = self._places, self._server.url
        await self._before_audit(places, url)
        self._audit = await asyncio.to_thread(audit_ledgers, url, flows.WRITTEN, places.ledgers(), flows.identity_of)

    async def _run_with_spark(self, striker: Striker) -> None:
        """The writers, the pipelines beside them, and the audit of all."""
        board = self._board
        assert self._driver is not None
        async with asyncio.TaskGroup() as group:
            watching = (group.create_task(self._watch_networks()), group.create_task(self._note_orders()))
            driving = group.create_task(self._driver.run())
            batch_strikes = group.create_task(striker.run(Moment.BATCHES))
            board.piping.begin("the virtual machine starts")
            await self.write(striker)
            # The driver may not finish before it was killed, and its successor must find something to do.
            await striker.driver_struck.wait()
            await self.close_the_day()
            self._places.writing_done.touch()
            await self._flowed.wait()
            striker.end()
            await batch_strikes
            board.piping.end(f"{board.batches} batches, {sum(flow.rows for flow in board.flows.values()):,} rows")
            await self._prove()
            await driving
            for task in watching:
                task.cancel()

    async def start(self) -> Striker:
        """The server, the networks and the topics are there; processes are made, and none of them started."""
        for network in self._networks:
            await network.start()
        for protocol in ADVERTISED:
            # Its clients go where the server says: to the network before it.
            self._server.settings[f"{protocol}.advertise"] = f"{HOST}:{self._storms[protocol].port}"
        await self._server.start()
        await self._zones.start()
        self._board.tell(f"server is up; seed {self._plan.seed}: {len(self._plan.strikes)} kills planned")
        await self._create_topics()
        self._make_processes()
        return Striker(self._plan, self._board, self._server, self._producers, self._driver, self._mark)

    async def write(self, striker: Striker) -> None:
        """Every producer to its end, through every strike that is theirs or the server's."""
        board = self._board
        board.writing.begin()
        async with asyncio.TaskGroup() as group:
            for process in self._producers.values():
                group.create_task(process.run())
            group.create_task(striker.run(Moment.ORDERS))
            group.create_task(self._zones.run())
        records = sum(tally.confirmed for tally in board.tallies.values())
        board.writing.end(f"{board.orders_confirmed:,} orders, {records:,} records confirmed")
        board.tell(f"every producer is done: {board.writing.detail}")

    async def close_the_day(self) -> None:
        """A payment long after the trading day: the watermark passes the last window, and Spark writes it out."""
        at = (OPENING + datetime.timedelta(days=7)).isoformat().replace("+00:00", "Z")
        value = msgspec.json.encode({"order_id": CLOSING, "cents": 0, "status": "closing", "at": at})
        with Ledger(self._places.ledger(CLOSING), writer=CLOSING, face=CLOSING_FACE) as ledger:
            ledger.sent(PAYMENTS, CLOSING, value, partition=0)
            ledger.sync()
            async with AsyncClient(f"http://{self._addresses()['http']}") as client:
                result = await client.append(PAYMENTS, value, message_id=CLOSING)
            ledger.confirmed(PAYMENTS, CLOSING, result.offset, partition=0)

    async def _prove(self) -> None:
        board = self._board
        board.auditing.begin("what must have come out is worked out from the ledgers")
        board.tell("Spark has come to the end of everything; the audit begins")
        places = self._places
        await asyncio.to_thread(write_expected, self._plan, places.ledgers(), places.expected)
        self._count_networks()
        places.run.write_bytes(msgspec.json.encode(run_of(board)))
        await self._before_audit(places, self._server.url)
        places.audit_wanted.touch()
        await board.until(lambda: self._audit is not None)

    @property
    def _networks(self) -> list[FaultyProxy]:
        return [*self._storms.values(), self._drizzle, *self._zones.networks]

    def _addresses(self) -> dict[str, str]:
        """By protocol, where producers find the server."""
        return {protocol: f"{HOST}:{network.port}" for protocol, network in self._storms.items()}

    # --- what it needs --------------------------------------------------------------------------------------------

    async def _create_topics(self) -> None:
        async with AsyncClient(self._server.url) as client:
            for topic in TOPICS:
                await client.create_topic(topic, partitions=PARTITIONS)

    def _make_processes(self) -> None:
        addresses = self._addresses()
        for share in self._plan.shares:
            told = producing.Told(
                addresses, share.face, share.producer, self._plan.seed, share.number, share.orders,
                str(self._places.ledger(share.producer)),
            )  # fmt: skip
            self._producers[share.producer] = Process(
                share.producer, "oncelog.demo.producer", msgspec.json.encode(told).decode(),
                self._places.complaints(share.producer), on_line=self._hearer(share),
            )  # fmt: skip
        if self._plan.spark:
            self._driver = self._made_driver()

    def _made_driver(self) -> Process:
        told_driver = driver.Told(
            f"http://{HOST}:{self._drizzle.port}", self._server.url, str(self._places.folder),
            max(1, round(flows.SALES_OFFSETS_PER_BATCH * self._plan.scale)), str(self._report),
            self._plan.seed, self._plan.scale,
        )  # fmt: skip
        return Process(
            "the Spark driver", "oncelog.demo.driver", msgspec.json.encode(told_driver).decode(),
            self._places.complaints("spark-driver"), on_line=self._hear_driver,
            environment={"TMPDIR": str(self._places.folder), "SPARK_LOCAL_IP": HOST},
        )  # fmt: skip

    def _hearer(self, share: Share) -> Callable[[str], None]:
        tally = self._board.tallies[share.face]

        def hear(line: str) -> None:
            said = msgspec.json.decode(line, type=producing.Said)
            tally.orders_by_producer[share.producer] = said.orders
            tally.records_by_producer[share.producer] = said.records
            tally.retried += said.retried
            tally.duplicates += said.duplicates
            self._board.touch()

        return hear

    def _hear_driver(self, line: str) -> None:
        board = self._board
        assert self._driver is not None
        said = msgspec.json.decode(line, type=driver.Said)
        if said.event == "session":
            board.piping.begin(f"driver {self._driver.lives} runs")
            board.tell(f"Spark driver {self._driver.lives} is up")
        elif said.event == "begin":
            board.piping.begin(f"driver {self._driver.lives}, {board.flows[said.flow].label}")
        elif said.event == "batch":
            board.flows[said.flow].batches += 1
            board.flows[said.flow].rows += said.rows
            if said.rows:
                board.note(f"Spark driver {self._driver.lives}, {board.flows[said.flow].label}: {said.rows:,} rows")
        elif said.event == "flowed":
            self._flowed.set()
        elif said.event == "step":
            board.auditing.detail = said.text
            board.note(f"audit: {said.text}")
        elif said.event == "audit":
            from oncelog.pipelines.audit_result import AuditResult

            self._audit = msgspec.json.decode(said.audit, type=AuditResult)
        board.touch()

    def _mark(self, kind: str, label: str) -> None:
        """An event for the report."""
        event = {"time_ms": time.time_ns() // 1_000_000, "kind": kind, "label": label}
        with self._places.events.open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")

    async def _watch_networks(self) -> None:
        while True:
            self._count_networks()
            await asyncio.sleep(NETWORK_LOOK_S)

    def _count_networks(self) -> None:
        self._board.dropped = sum(network.dropped for network in self._networks)
        self._board.cut = sum(network.cut for network in self._networks)
        self._board.delayed = sum(network.delayed for network in self._networks)

    async def _note_orders(self) -> None:
        board = self._board
        while True:
            await asyncio.sleep(NOTE_ORDERS_EVERY_S)
            if board.writing.step is Step.DONE:
                return
            board.note(f"{board.orders_confirmed:,} of {board.orders:,} orders confirmed")

    def _where(self) -> str:
        running = [phase.title for phase in self._board.phases if phase.step is Step.RUNNING]
        counts = f"{self._board.orders_confirmed:,} orders, {self._board.batches} batches"
        return f"{', '.join(running) or 'at the start'}; {counts}"

    async def clean_up(self) -> None:
        """Nothing that was started is left."""
        processes = [*self._producers.values(), *([self._driver] if self._driver is not None else [])]
        for process in processes:
            process.discard()
        await self._server.close()
        await self._zones.clean_up()
        for process in processes:
            await process.gone()
        for network in self._networks:
            await network.stop()


def _board(plan: Plan) -> Board:
    tallies = {face.name: Tally(face.label, 0) for face in FACES}
    for face in FACES:
        tallies[face.name].retries_told = face.tells_retries
    for share in plan.shares:
        tallies[share.face].orders += share.orders
    tallies[FACE] = Tally(LABEL, 0)  # its facts are no orders
    pipelines = {name: Flow(label) for name, label in flows.LABELS.items()} if plan.spark else {}
    return Board(plan.seed, plan.scale, tallies, pipelines)


def run_of(board: Board) -> Run:
    """What the report says of the writers: by the names, and in the order, in which the screen shows them."""
    writers = [
        Writers(name, tally.label, tally.retried if tally.retries_told else -1, tally.duplicates, tally.killed)
        for name, tally in board.tallies.items()
    ]
    return Run(board.elapsed_s, writers, board.dropped, board.cut)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
