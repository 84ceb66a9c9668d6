"""Every face under kills, without Spark: the producers' ledgers and the log agree, record by record."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.console import Console

from oncelog.client import AsyncClient, Record
from oncelog.demo.faces import FACES, shares_of
from oncelog.demo.orders import CLOSING, PARTITIONS, TOPICS, order_of
from oncelog.demo.places import Places
from oncelog.demo.plan import Plan, planned
from oncelog.demo.plant import FACE, FACTS, facts_of, readings
from oncelog.demo.run import Demo
from oncelog.demo.zones import PLANT, STRIKES
from oncelog.pipelines.ledger import Line, lines_of

# Eight processes have to start, and the server four times again; a loaded machine takes its time.
pytestmark = pytest.mark.timeout(400)

SCALE = 0.08
SEED = 11

Log = dict[tuple[str, int], list[Record]]


class Ran:
    """A run that is over: its plan, its ledgers, and everything in the log."""

    def __init__(self, plan: Plan, demo: Demo, lines: list[Line], log: Log) -> None:
        self.plan = plan
        self.demo = demo
        self.lines = lines
        self.log = log
        self.places: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        """Topic and order → partition and offset, as often as it is in the log."""
        for (topic, partition), records in log.items():
            for record in records:
                self.places[topic, name_of(record)].append((partition, record.offset))


def name_of(record: Record) -> str:
    """Of an order, or of a fact that came from the other zone."""
    value = record.json()
    return str(value["order_id"] if "order_id" in value else value["object"]["reading_id"])


@contextlib.asynccontextmanager
async def made(plan: Plan, folder: Path) -> AsyncIterator[tuple[Demo, Places]]:
    places = Places(folder)
    places.make()

    async def nothing(_places: Places, _url: str) -> None: ...

    demo = Demo(plan, places, folder / "report.html", Console(quiet=True), nothing)
    try:
        yield demo, places
    finally:
        await demo.clean_up()


async def run(plan: Plan, folder: Path) -> Ran:
    async with made(plan, folder) as (demo, places):
        striker = await demo.start()
        await demo.write(striker)
        await demo.close_the_day()
        log: Log = {}
        async with AsyncClient(demo.url) as client:
            for topic, partitions in [*((topic, PARTITIONS) for topic in TOPICS), (FACTS, 1)]:
                for partition in range(partitions):
                    async with client.reader(topic, partition=partition, live=False) as reader:
                        log[topic, partition] = [record async for record in reader]
        return Ran(plan, demo, [line for path in places.ledgers() for line in lines_of(path)], log)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    plan = planned(SEED, SCALE, shares_of(SCALE))
    return asyncio.run(run(plan, tmp_path_factory.mktemp("demo")))


def test_everybody_was_killed_and_everything_was_written(ran: Ran) -> None:
    board = ran.demo.board
    assert board.server_kills == 4
    assert board.producer_kills == len(FACES)
    assert board.orders_confirmed == ran.plan.orders
    assert board.writing.detail


def test_every_order_of_the_plan_is_in_every_topic_once_with_its_bytes(ran: Ran) -> None:
    # By offset: markers of transactions lie between the records.
    values = {(place, record.offset): record.value for place, records in ran.log.items() for record in records}
    for share in ran.plan.shares:
        for number in range(share.orders):
            order = order_of(ran.plan.seed, share.producer, number, share.orders)
            for topic in TOPICS:
                ((partition, offset),) = ran.places[topic, order.order_id]
                assert values[(topic, partition), offset] == order.value(topic)


def test_every_fact_of_the_other_zone_arrived_once_with_its_bytes(ran: Ran) -> None:
    board = ran.demo.board
    assert board.zone_strikes == len(STRIKES), "its server was killed, its link cut, its forwarder killed"
    for reading in readings(PLANT, facts_of(SCALE)):
        ((partition, offset),) = ran.places[FACTS, reading.reading_id]
        assert ran.log[FACTS, partition][offset].value == reading.value
    assert board.tallies[FACE].confirmed == facts_of(SCALE)
    assert board.tallies[FACE].duplicates > 0


def test_nothing_is_in_the_log_that_nobody_sent(ran: Ran) -> None:
    sent = {(line.topic, line.id) for line in ran.lines if line.state == "sent"}
    assert set(ran.places) == sent
    assert ("payments", CLOSING) in sent


def test_every_confirmation_in_a_ledger_names_the_place_in_the_log(ran: Ran) -> None:
    told = [line for line in ran.lines if line.state == "confirmed" and line.offset >= 0]
    assert len(told) > ran.plan.orders
    for line in told:
        assert ran.places[line.topic, line.id] == [(line.partition, line.offset)], line


def test_records_of_a_producer_stand_in_the_order_in_which_it_made_them(ran: Ran) -> None:
    for records in ran.log.values():
        numbers: dict[str, int] = defaultdict(lambda: -1)
        for record in records:
            producer, _, number = name_of(record).rpartition("-")
            if producer:
                assert numbers[producer] < int(number)
                numbers[producer] = int(number)


def test_faces_met_what_they_are_about(ran: Ran) -> None:
    for face in FACES:
        tally = ran.demo.board.tallies[face.name]
        assert tally.confirmed == 3 * tally.orders
        # librdkafka sends again by itself and does not tell.
        assert tally.duplicates > 0 or face.name == "kafka", (
            f"{face.label}: nothing was ever sent twice, so nothing is shown"
        )
        assert tally.retried > 0 or not face.tells_retries


def test_commits_are_noted_as_what_belongs_together(ran: Ran) -> None:
    commits: dict[str, set[str]] = defaultdict(set)
    batches: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for line in ran.lines:
        if line.commit and line.face == "nats":
            batches[line.commit].add((line.topic, line.id))
        elif line.commit:
            commits[line.commit].add(line.topic)
    assert commits
    assert all(topics == set(TOPICS) for topics in commits.values())
    # An atomic batch of NATS lies in one stream: its records stand side by side.
    assert batches
    for records in batches.values():
        offsets = sorted(offset for place in records for _, offset in ran.places[place])
        assert offsets == list(range(offsets[0], offsets[0] + len(records)))
