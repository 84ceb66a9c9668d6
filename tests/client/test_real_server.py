"""The client against the real server, in a process of its own: every call, and kill -9 in the middle of it."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from oncelog.client import (
    AsyncClient,
    BatchResult,
    Client,
    ClientError,
    CommitAppend,
    CommitRecord,
    ConditionFailed,
    Conflict,
    CursorMove,
    DeadLettered,
    ExpectedTail,
    Fenced,
    IdConflict,
    Malformed,
    NotFound,
    OffsetGone,
    OutcomeUnknown,
    ProducerOptions,
    PublishStage,
    SequenceConflict,
    StreamClosed,
    StreamReplaced,
)
from oncelog.client.options import DialectName
from oncelog.client.reader import OnGone
from tests.client.peer import Heard, run

SERVE = "from oncelog.cli.main import main; main()"


class Server:
    """`oncelog serve` on one directory and, from the second start on, one port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._address = "127.0.0.1:0"
        self._process: Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self._address}"

    def start(self) -> None:
        command = [sys.executable, "-c", SERVE, "serve", "--data", str(self._directory), "--any-port"]
        command += ["--http", self._address]
        self._process = Popen(command, stdout=PIPE, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert ready.startswith("ready "), ready
        self._address = dict(word.split("=", 1) for word in ready.split()[1:])["http"]

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None


@contextmanager
def served(directory: Path) -> Iterator[Server]:
    server = Server(directory)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("data")) as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def values(client: Client, topic: str, partition: int = 0) -> list[object]:
    with client.reader(topic, partition=partition, live=False) as reader:
        return [record.json() for record in reader]


# --- each record once, in order ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["x", "durable-streams"])
def test_kill_minus_nine_in_mid_flight_loses_and_doubles_nothing(tmp_path: Path, dialect: DialectName) -> None:
    async def main(server: Server) -> None:
        acks = Heard()
        options: ProducerOptions = {
            "producer_id": "p",
            "dialect": dialect,
            "on_batch_ack": acks,
            "max_batch_records": 50,
            "max_pending_bytes": 100_000,
            "retry_backoff_max_ms": 50,
        }
        number, enough = 0, asyncio.Event()
        async with AsyncClient(server.url) as client:
            await client.create_topic("a", partitions=2)
            producer = client.producer("a", **options)

            async def write() -> None:
                nonlocal number
                while not enough.is_set():
                    await producer.append(number, partition=number % 2)
                    number += 1

            writing = asyncio.create_task(write())
            for _ in range(3):
                await acks.until(len(acks) + 20)
                server.kill()
                assert producer.pending_count > 0  # requests are written and unanswered
                await asyncio.to_thread(server.start)
            await acks.until(len(acks) + 20)
            enough.set()
            await writing
            await producer.close()
            for partition in range(2):
                async with client.reader("a", partition=partition, live=False) as reader:
                    written = [(record.offset, record.json()) async for record in reader]
                assert written == list(enumerate(range(partition, number, 2)))
                own: list[BatchResult] = [ack for ack in acks if ack.partition == partition]
                assert [ack.seq for ack in own] == list(range(len(own)))
                assert sum(ack.count for ack in own) == len(written)
                for ack in own:
                    assert ack.first_offset in (-1, ack.next_offset - ack.count)

    with served(tmp_path / "data") as server:
        run(main(server))


def test_single_appends_and_a_live_reader_survive_kills(tmp_path: Path) -> None:
    async def main(server: Server) -> None:
        async with AsyncClient(server.url) as client:
            await client.stream("a").create()
            seen: list[object] = []

            async def follow() -> None:
                async with client.reader("a", cursor="c") as reader:
                    async for record in reader:
                        seen.append(record.json())
                    await reader.save()

            following = asyncio.create_task(follow())
            for number in range(60):
                if number in (20, 40):
                    server.kill()
                    starting = asyncio.create_task(asyncio.to_thread(server.start))
                    await client.append("a", number)
                    await starting
                else:
                    await client.append("a", number)
            await client.stream("a").close()
            await following
            assert seen == list(range(60))
            cursor = await client.cursor("c", "a")
            assert cursor is not None
            assert cursor.frontier == 60

    with served(tmp_path / "data") as server:
        run(main(server))


def test_a_restarted_producer_resumes_a_deterministic_source(client: Client) -> None:
    client.stream("resumed").create()
    source = [f"line {number}" for number in range(30)]
    for stop in (7, 19, 30):
        with client.producer("resumed", producer_id="p", max_batch_records=1) as producer:
            last = producer.resume()
            for line in source[last + 1 : stop]:
                producer.append(line)
            producer.flush()
            assert producer.last_sequence() == stop - 1
    assert values(client, "resumed") == source
    info = client.producer_info("resumed", "p")
    assert info is not None
    assert (info.epoch, info.last_sequence) == (1, 29)


def test_a_restart_in_the_same_epoch_is_not_told_that_its_records_are_there(client: Client) -> None:
    client.stream("same-epoch").create()
    for attempt, count in ((1, 10), (2, 3)):
        options = ProducerOptions(producer_id="p", dialect="durable-streams", max_batch_records=1)
        producer = client.producer("same-epoch", **options)
        for number in range(count):
            producer.append([attempt, number])
        if attempt == 1:
            producer.close()
        else:
            with pytest.raises(SequenceConflict):
                producer.close()
    assert values(client, "same-epoch") == [[1, number] for number in range(10)]


def test_a_resumed_run_that_was_overtaken_by_far_is_refused(client: Client) -> None:
    client.stream("overtaken").create()
    old = client.producer("overtaken", producer_id="p", max_batch_records=1)
    new = client.producer("overtaken", producer_id="p", max_batch_records=1)
    for number in range(3):
        old.append(number)
    old.flush()
    assert new.resume() == 2
    for number in range(3, 13):
        old.append(number)
    old.close()
    new.append("other")
    with pytest.raises(SequenceConflict):
        new.close()
    assert values(client, "overtaken") == list(range(13))


def test_a_producer_whose_stream_was_made_anew_is_told_what_to_do(client: Client) -> None:
    client.stream("anew").create()
    with client.producer("anew", producer_id="p") as producer:
        producer.append(1)
        producer.flush()
        client.delete_topic("anew")
        client.stream("anew").create()
        producer.append(2)
        with pytest.raises(Malformed, match="the stream was deleted and made again, or another server answers"):
            producer.flush()
        with suppress(ClientError):
            producer.close()


def test_a_producer_that_reaches_nobody_says_so() -> None:
    with Client("127.0.0.1:1") as client:
        producer = client.producer("any", producer_id="p", delivery_timeout_ms=300)
        producer.append(1)
        with pytest.raises(OutcomeUnknown, match="never sent: nothing of it is written; no connection to"):
            producer.flush()


def test_a_wrong_content_type_is_a_conflict_and_no_gap(client: Client) -> None:
    client.stream("texts", "text/plain").create()
    with pytest.raises(Conflict, match="content_type_mismatch") as caught:
        client.append("texts", {"a": 1})
    assert type(caught.value) is Conflict
    producer = client.producer("texts", producer_id="p")
    producer.append({"a": 1})
    with pytest.raises(Conflict, match="content_type_mismatch") as caught:
        producer.close()
    assert type(caught.value) is Conflict


def test_a_stage_of_json_goes_into_a_stream_of_json(client: Client) -> None:
    client.create_topic("staged")
    fence = client.open_application("json").fence
    stage = client.open_stage("json", fence, content_type="application/json")
    stage = client.stage_records(stage.stage_id, 0, [b'{"a":1}', b"2"])
    client.publish("json", fence, "q", 0, [PublishStage(stage.stage_id, "staged", stage.count)])
    assert values(client, "staged") == [{"a": 1}, 2]


def test_a_second_producer_of_the_same_id_fences_the_first(client: Client) -> None:
    client.stream("fenced").create()
    first = client.producer("fenced", producer_id="p")
    first.append(1)
    first.flush()
    with client.producer("fenced", producer_id="p") as second:
        second.append(2)
    first.append(3)
    with pytest.raises(Fenced) as caught:
        first.flush()
    assert caught.value.current == 2
    first.close()
    assert values(client, "fenced") == [1, 2]


def test_a_refused_record_goes_to_the_dead_letter_stream(client: Client) -> None:
    client.stream("letters").create()
    client.stream("dead", "application/octet-stream").create()
    client.append("letters", "taken", message_id="m")
    errors = Heard()
    with client.producer("letters", producer_id="p", dead_letter="dead", on_error=errors) as producer:
        for number in range(20):
            producer.append(number, message_id="m" if number == 9 else None)
        producer.flush()
    assert values(client, "letters") == ["taken", *range(9), *range(10, 20)]
    with client.reader("dead", live=False) as reader:
        (record,) = list(reader)
    assert record.value == b"9"
    assert dict(record.headers)["oncelog.dead-letter.stream"] == b"letters"
    ((error, _),) = errors
    assert isinstance(error, DeadLettered)
    assert isinstance(error.cause, IdConflict)


# --- everything else -----------------------------------------------------------------------------------------------


def test_an_append_is_recognised_by_its_id(client: Client) -> None:
    client.stream("ids").create()
    first = client.append("ids", {"n": 1}, message_id="order 1/ä")
    again = client.append("ids", {"n": 1}, message_id="order 1/ä")
    assert (first.offset, first.duplicate, again.offset, again.duplicate) == (0, False, 0, True)
    with pytest.raises(IdConflict):
        client.append("ids", {"n": 2}, message_id="order 1/ä")
    receipt = client.receipt("ids", "order 1/ä")
    assert receipt is not None
    assert (receipt.first, receipt.next) == (0, 1)
    assert client.receipt("ids", "unknown") is None


def test_records_come_back_with_all_they_had(client: Client) -> None:
    client.stream("whole", "text/plain").create()
    with client.producer("whole", "text/plain", producer_id="p") as producer:
        producer.append("plain")
        producer.append("keyed", key="k", headers={"h": "v", "n": None}, timestamp_ms=5)
        producer.append("")
        producer.append("named", message_id="m", key=b"\x00")
    with client.reader("whole", live=False) as reader:
        records = list(reader)
    assert [record.value for record in records] == [b"plain", b"keyed", b"", b"named"]
    assert (records[1].key, records[1].headers, records[1].timestamp_ms) == (b"k", (("h", b"v"), ("n", None)), 5)
    assert records[3].key == b"\x00"


@pytest.mark.parametrize("raw_batches", [False, True])
def test_producers_of_every_form_are_read_back_in_order(client: Client, raw_batches: bool) -> None:
    topic = f"forms-{raw_batches}"
    client.create_topic(topic, partitions=3)
    with client.producer(topic, producer_id="p", raw_batches=raw_batches, max_batch_bytes=2048) as producer:
        for number in range(900):
            producer.append(number, partition=number % 3, key="k" if number % 7 == 0 else None)
    for partition in range(3):
        assert values(client, topic, partition) == list(range(partition, 900, 3))


def test_conditions_order_keys_and_the_end_of_a_stream(client: Client) -> None:
    stream = client.stream("ends")
    assert stream.create()
    assert not stream.create()
    with pytest.raises(Conflict):
        client.stream("ends", "text/plain").create()
    assert stream.append(1, expected_tail=0).next_offset == 1
    with pytest.raises(ConditionFailed) as caught:
        stream.append(2, expected_tail=0)
    assert caught.value.number("tail") == 1
    stream.append(2, order_key="b")
    with pytest.raises(Conflict):
        stream.append(3, order_key="a")
    last = stream.append(4, message_id="last", close=True)
    assert stream.append(4, message_id="last", close=True).offset == last.offset
    with pytest.raises(StreamClosed):
        stream.append(5)
    head = stream.head()
    assert (head.next_offset, head.closed, head.content_type) == (3, True, "application/json")
    with client.reader("ends") as reader:  # live, and ends by itself
        assert [record.json() for record in reader] == [1, 2, 4]
    stream.delete()
    with pytest.raises(NotFound):
        stream.head()


def test_topics_listings_and_trimming(client: Client) -> None:
    assert client.create_topic("admin/a", partitions=2)
    assert not client.create_topic("admin/a", partitions=2)
    client.grow_topic("admin/a", 3)
    client.configure_topic("admin/a", dedupe_floor_ms=5_000)
    topic = client.topic("admin/a")
    assert (topic.partitions, topic.dedupe_floor_ms) == (3, 5_000)
    for number in range(10):
        client.append("admin/a", number)
    page = client.streams("admin/")
    assert [(stream.topic, stream.partition, stream.tail) for stream in page.streams] == [
        ("admin/a", 0, 10),
        ("admin/a", 1, 0),
        ("admin/a", 2, 0),
    ]
    assert {stream.topic for stream in client.cut("admin/a").streams} == {"admin/a"}
    assert client.trim("admin/a", 4).floor == 4
    client.delete_records("admin/a", [(6, 8)])
    with client.reader("admin/a", offset=0, live=False) as reader, pytest.raises(OffsetGone) as caught:
        reader.read()
    assert caught.value.floor == 4
    with client.reader("admin/a", offset=0, live=False, on_gone="skip") as reader:
        assert [record.offset for record in reader] == [4, 5, 8, 9]
    client.delete_topic("admin/a")
    with pytest.raises(NotFound):
        client.topic("admin/a")


def test_commits_cursors_stages_and_the_server_itself(client: Client) -> None:
    client.create_topic("commit/a")
    client.create_topic("commit/b", content_type="application/octet-stream")
    appends = [
        CommitAppend("commit/a", [{"n": 1}], message_id="m"),
        CommitAppend("commit/b", ["text", b"\x00", CommitRecord("x", key=b"\x01", headers={"h": "v"})]),
    ]
    done = client.commit(appends, cursors=[CursorMove("c", "commit/a", 1)], commit_id="once")
    assert [(place.first, place.next) for place in done.outcome] == [(0, 1), (0, 3)]
    again = client.commit(appends, cursors=[CursorMove("c", "commit/a", 1)], commit_id="once")
    assert (again.duplicate, again.outcome) == (True, done.outcome)
    with pytest.raises(ConditionFailed):
        client.commit([CommitAppend("commit/b", [b"y"])], conditions=[ExpectedTail("commit/b", 0)])
    cursor = client.cursor("c", "commit/a")
    assert cursor is not None
    assert cursor.frontier == 1
    assert [found.name for found in client.cursors("c").cursors] == ["c"]
    client.delete_cursor("c", "commit/a")
    client.delete_cursor("c", "commit/a")
    assert client.cursor("c", "commit/a") is None

    application = client.open_application("app")
    stage = client.open_stage("app", application.fence)
    stage = client.stage_records(stage.stage_id, 0, [b"s1", b"s2"])
    assert client.stage_records(stage.stage_id, 0, [b"s1", b"s2"]).duplicate
    wasted = client.open_stage("app", application.fence)
    client.drop_stages([wasted.stage_id])
    staged = [PublishStage(stage.stage_id, "commit/b", stage.count)]
    published = client.publish("app", application.fence, "q", 0, staged, source_end=b"\x01")
    assert (published.outcome[0].first, published.outcome[0].next) == (3, 5)
    assert client.publish("app", application.fence, "q", 0, staged, source_end=b"\x01").duplicate
    found = client.application("app")
    assert found is not None
    assert (found.batch, found.source_end) == (0, b"\x01")

    assert client.health().status == "ok"
    assert "oncelog" in client.metrics()
    assert client.openapi()["openapi"].startswith("3.1")
    assert client.producers("commit/a").producers == []
    assert client.commit_producer_info("nobody") is None


# --- a stream that gets the name of another ------------------------------------------------------------------------


def made_anew(client: Client, topic: str, records: int, *, closed: bool = False) -> None:
    """Deletes the stream, if it is there, and fills another one of its name."""
    before = 0
    with suppress(NotFound):
        before = client.topic(topic).created_ms
        client.delete_topic(topic)
    while True:
        client.create_topic(topic)
        if client.topic(topic).created_ms != before:
            break
        client.delete_topic(topic)  # within the same millisecond nobody can tell them apart
    if records:
        client.commit([CommitAppend(topic, list(range(records)))])
    if closed:
        client.stream(topic).close()


@pytest.mark.parametrize("records", [150, 100, 50, 0])
@pytest.mark.parametrize("on_gone", ["raise", "skip"])
def test_a_reader_does_not_go_on_in_another_stream_of_the_same_name(
    client: Client, on_gone: OnGone, records: int
) -> None:
    topic = f"replaced-{on_gone}-{records}"
    made_anew(client, topic, 100)
    created_ms = client.topic(topic).created_ms
    with client.reader(topic, on_gone=on_gone) as reader:
        assert len(reader.read()) == 100
        made_anew(client, topic, records)
        for _ in range(2):  # it stays so, however often it is asked
            with pytest.raises(StreamReplaced, match=r"'replaced.*offset 100 .*make a new reader") as caught:
                reader.read(wait=False)
        error = caught.value
        assert (error.topic, error.partition, error.offset) == (topic, 0, 100)
        assert (error.read_created_ms, error.created_ms) == (created_ms, client.topic(topic).created_ms)
        assert reader.offset == 100


def test_a_reader_that_waits_hears_that_its_stream_was_replaced(client: Client) -> None:
    made_anew(client, "replaced-live", 3)
    with client.reader("replaced-live") as reader:
        assert len(reader.read()) == 3
        client.delete_topic("replaced-live")
        with pytest.raises(NotFound):  # what it says while there is none
            reader.read()
        made_anew(client, "replaced-live", 4)
        with pytest.raises(StreamReplaced):  # at the end of the last answer it waits: this is the long-poll
            next(reader)


def test_the_end_of_another_stream_is_not_taken_for_the_end_of_this_one(client: Client) -> None:
    made_anew(client, "replaced-closed", 3)
    with client.reader("replaced-closed") as reader:
        assert len(reader.read()) == 3
        made_anew(client, "replaced-closed", 3, closed=True)
        for _ in range(2):
            with pytest.raises(StreamReplaced):
                reader.read()
        assert not reader.closed


def test_another_stream_that_was_trimmed_is_still_another_stream(client: Client) -> None:
    made_anew(client, "replaced-trimmed", 3)
    with client.reader("replaced-trimmed", offset=1, live=False) as reader:
        assert len(reader.read()) == 2
        made_anew(client, "replaced-trimmed", 10)
        client.trim("replaced-trimmed", 8)
        with pytest.raises(StreamReplaced):
            reader.read()


def test_a_place_in_one_stream_is_not_saved_as_a_place_in_another(client: Client) -> None:
    made_anew(client, "replaced-saved", 3)
    with client.reader("replaced-saved", live=False, cursor="c") as reader:
        next(reader)
        made_anew(client, "replaced-saved", 5)
        with pytest.raises(StreamReplaced) as caught:
            reader.save()
        assert caught.value.offset == 1
    with client.reader("replaced-saved", live=False, cursor="c") as reader:
        assert len(list(reader)) == 5  # a cursor goes with its stream: the new one is read from its beginning


# --- bytes of every kind -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_every_kind_are_stored_as_the_same_json(client: Client, kind: Callable[[bytes], object]) -> None:
    topic = f"bytes-{kind.__name__}"
    client.stream(topic).create()
    data = kind(b'{"n":1}')
    client.append(topic, data)
    with client.producer(topic, producer_id="p") as producer:
        producer.append(data)
    with client.producer(topic, producer_id="q", raw_batches=True) as producer:
        producer.append(data)
        producer.append(data, key="k")
    client.commit([CommitAppend(topic, [data, CommitRecord(data, key="k")])])
    stage = client.open_stage(content_type="application/json")
    client.stage_records(stage.stage_id, 0, [data])  # type: ignore[list-item]
    with client.reader(topic, live=False) as reader:
        assert [record.value for record in reader] == [b'{"n":1}'] * 6


def test_a_number_that_the_server_takes_can_be_read_though_no_float_holds_it(client: Client) -> None:
    client.stream("large-number").create()
    client.append("large-number", b"[1E400,1]")
    assert values(client, "large-number") == [[float("inf"), 1]]
