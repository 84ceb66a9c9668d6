"""The check of a running log names every broken promise, and holds nothing against a log that goes on meanwhile."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from oncelog.cli.live_check import Damage, LiveReport, RawPage, check
from oncelog.client.errors import Damaged, NotFound, OffsetGone
from oncelog.core import batch as codec


def batch(base: int, count: int = 2) -> bytes:
    encoded = codec.encode([(delta, 1_000, None, b"v%d" % (base + delta), ()) for delta in range(count)])
    return base.to_bytes(8, "big") + encoded[8:]


def gone(floor: int) -> OffsetGone:
    return OffsetGone(410, "offset_gone", "trimmed", {"floor": floor}, retry_after_s=0.0)


def missing() -> NotFound:
    return NotFound(404, "topic_missing", "no such topic", {}, retry_after_s=0.0)


def damaged(**members: int) -> Damaged:
    return Damaged(500, "damaged", "a checksum differs, in segment-1 at byte 512", members, retry_after_s=0.0)


class ScriptedLog:
    """One stream `t` of six records in three batches; each test changes what it says."""

    def __init__(self) -> None:
        self.cuts = [self.cut(), self.cut()]
        self.pages: dict[int, RawPage | Exception] = {
            0: RawPage(batch(0) + batch(2), 4),
            3: RawPage(batch(2) + batch(4), 6),
            4: RawPage(batch(4), 6),
        }
        self.producers = [{"name": "p", "scope": "http", "epoch": 1, "last_sequence": 7, "first": 4, "next": 6}]
        self.producer: dict[str, Any] | Exception = self.producers[0]
        self.cursors: list[dict[str, Any]] = [
            {"name": "c", "topic": "t", "partition": 0, "frontier": 2, "confirmed": [[3, 4]]}
        ]
        self.created_ms = 0
        self.refusals: dict[str, Exception] = {}
        """Paths that are refused."""

    @staticmethod
    def cut(entry: int = 9, floor: int = 0, stable: int = 6, tail: int = 6, closed: bool = False) -> dict[str, Any]:
        row = {"topic": "t", "partition": 0, "floor": floor, "stable": stable, "tail": tail, "closed": closed}
        return {"entry": entry, "time_ms": 100, "streams": [row]}

    def get(self, path: str, query: Mapping[str, str | int | None]) -> Any:
        if path in self.refusals:
            raise self.refusals[path]
        if path == "/health":
            return {"status": "ok", "durability": "fdatasync", "version": "1", "entry": 9}
        if path == "/v1/cut":
            return self.cuts[0] if query or len(self.cuts) == 1 else self.cuts.pop(0)
        if path == "/v1/producers":
            return {"producers": self.producers, "next": None}
        if path == "/v1/cursors":
            return {"cursors": self.cursors, "next": None}
        if path == "/v1/topics/t":
            return {"created_ms": self.created_ms}
        assert path == "/v1/producers/t/p"
        if isinstance(self.producer, Exception):
            raise self.producer
        return self.producer

    def raw(self, topic: str, partition: int, offset: int) -> RawPage:
        page = self.pages[offset]
        if isinstance(page, Exception):
            raise page
        return page


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog()


def checked(log: ScriptedLog) -> LiveReport:
    return check(log, "http://log")


def damages(log: ScriptedLog) -> list[str]:
    return [damage.what for damage in checked(log).damages]


def test_sound_log_is_sound_and_counted(log: ScriptedLog) -> None:
    steps: list[tuple[int, int]] = []
    report = check(log, "http://log", lambda done, total: steps.append((done, total)))
    assert report.is_sound
    assert not report.notes
    assert (report.streams, report.records, report.holes, report.batches) == (1, 6, 0, 3)
    assert (report.producers, report.cursors, report.entry) == (1, 1, 9)
    assert steps[0] == (0, 6)
    assert steps[-1] == (6, 6)
    assert steps == sorted(steps)


def test_absent_offsets_are_holes(log: ScriptedLog) -> None:
    log.pages = {0: RawPage(batch(0), 5), 5: RawPage(b"", 6)}
    report = checked(log)
    assert report.is_sound
    assert (report.records, report.holes) == (2, 4)


def test_first_batch_may_begin_before_the_offset_asked_for(log: ScriptedLog) -> None:
    log.cuts = [log.cut(floor=1), log.cut(floor=1)]
    log.pages = {1: RawPage(batch(0) + batch(2, 4), 6)}
    report = checked(log)
    assert report.is_sound
    assert (report.records, report.holes) == (5, 0)


def test_records_behind_the_cut_are_not_counted(log: ScriptedLog) -> None:
    log.pages[4] = RawPage(batch(4) + batch(6), 8)
    report = checked(log)
    assert report.is_sound
    assert report.records == 6


def flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


@pytest.mark.parametrize("at", range(16, len(batch(0))))
def test_every_changed_byte_of_a_batch_is_damage(log: ScriptedLog, at: int) -> None:
    log.pages[0] = RawPage(flipped(batch(0), at) + batch(2), 4)
    assert damages(log)


Change = Callable[[ScriptedLog], None]


def change(name: str, value: object) -> Change:
    return lambda log: setattr(log, name, value)


def page(offset: int, body: bytes, next_offset: int) -> Change:
    return lambda log: log.pages.update({offset: RawPage(body, next_offset)})


def producer(**fields: int) -> Change:
    def changed(log: ScriptedLog) -> None:
        log.producers = [{**log.producers[0], **fields}]
        log.producer = log.producers[0]

    return changed


def cursor(**fields: object) -> Change:
    return lambda log: setattr(log, "cursors", [{**log.cursors[0], **fields}])


CUT = ScriptedLog.cut


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (change("cuts", [CUT(stable=7)] * 2), "the numbers are out of order: floor 0, stable 7, tail 6"),
        (change("cuts", [CUT(floor=7)] * 2), "the numbers are out of order"),
        (change("cuts", [CUT(), CUT(entry=8)]), "the log went back from entry 9 to 8"),
        (change("cuts", [CUT(), CUT(tail=5, stable=5)]), "stable went back from 6 to 5"),
        (change("cuts", [CUT(closed=True), CUT()]), "it was closed and is open again"),
        (page(0, batch(0) + batch(1), 4), "the batch at offset 1 begins before the last one ended (2)"),
        (page(0, batch(2) + batch(0), 4), "the batch at offset 0 begins before the last one ended (4)"),
        (page(0, batch(0) + batch(2)[:-1], 4), "the batch at offset 2 ends too early"),
        (page(0, batch(0) + b"no batch", 4), "a read at 0 gave something that is no batch"),
        (page(0, batch(0) + batch(2), 3), "a read at 0 gave records up to 4 but says 3"),
        (page(0, b"", 0), "a read at 0 says to go on at 0"),
        (page(0, codec.encode_marker(1, 0, True, 0, 1_000), 4), "the batch at offset 0 is a marker"),
        (lambda log: log.pages.update({0: gone(0)}), "offset 0 is refused as trimmed, but the floor is 0"),
        (producer(next=7), "producer 'p' remembers offsets 4 to 7, beyond the tail"),
        (producer(first=6, next=5), "producer 'p' remembers offsets 6 to 5"),
        (change("producer", missing()), "producer 'p' is listed, but unknown"),
        (change("producer", {"epoch": 1, "last_sequence": 6}), "producer 'p' went back"),
        (cursor(frontier=7), "cursor 'c' stands at 7, behind the tail"),
        (cursor(confirmed=[[1, 2]]), "cursor 'c' confirmed 1 to 2 out of order"),
        (cursor(confirmed=[[4, 5], [3, 4]]), "cursor 'c' confirmed 3 to 4 out of order"),
    ],
)
def test_broken_promise_is_named(log: ScriptedLog, broken: Change, what: str) -> None:
    broken(log)
    assert any(damage.startswith(what) for damage in damages(log)), damages(log)


REFUSED = "as damaged: a checksum differs, in segment-1 at byte 512"


def test_damage_that_the_server_tells_is_reported_and_the_next_stream_is_read(log: ScriptedLog) -> None:
    cut = log.cut()
    cut["streams"].append({**cut["streams"][0], "topic": "u"})
    log.cuts = [cut, cut]
    log.pages[4] = damaged()
    read = log.raw

    def raw(topic: str, partition: int, offset: int) -> RawPage:
        return RawPage(batch(0, 6), 6) if topic == "u" else read(topic, partition, offset)

    log.raw = raw  # type: ignore[method-assign]
    log.producers = []
    report = checked(log)
    assert report.damages == [Damage(f"the server refuses a read at 4 {REFUSED}", "t", 0, 4)]
    assert (report.records, report.holes) == (4 + 6, 0)
    assert report.cursors == 1


def test_reading_goes_on_behind_each_damage(log: ScriptedLog) -> None:
    log.pages = {0: damaged(next=2), 2: RawPage(batch(2), 4), 4: damaged(next=6)}
    report = checked(log)
    assert report.damages == [Damage(f"the server refuses a read at {at} {REFUSED}", "t", 0, at) for at in (0, 4)]
    assert (report.records, report.holes, report.batches) == (2, 0, 1)


def test_damage_that_says_to_go_on_where_it_is_ends_the_stream(log: ScriptedLog) -> None:
    log.pages[0] = damaged(next=0)
    assert damages(log) == [f"the server refuses a read at 0 {REFUSED}"]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/cut", Damage(f"the server refuses an answer {REFUSED}")),
        ("/v1/cursors", Damage(f"the server refuses an answer {REFUSED}")),
        ("/v1/producers", Damage(f"the server refuses an answer {REFUSED}", "t", 0)),
        ("/v1/producers/t/p", Damage(f"the server refuses an answer {REFUSED}", "t", 0)),
    ],
)
def test_damage_that_any_question_meets_is_reported(log: ScriptedLog, path: str, found: Damage) -> None:
    log.refusals[path] = damaged()
    assert checked(log).damages == [found]


def test_damage_of_a_second_read_is_reported(log: ScriptedLog) -> None:
    pages = [log.pages[0], damaged()]
    read = log.raw

    def raw(topic: str, partition: int, offset: int) -> RawPage:
        if offset == 0:
            log.pages[0] = pages.pop(0)
        return read(topic, partition, offset)

    log.raw = raw  # type: ignore[method-assign]
    assert checked(log).damages == [Damage(f"the server refuses a read at 0 {REFUSED}", "t", 0, 0)]


@pytest.mark.parametrize(
    ("meanwhile", "note"),
    [
        (change("cuts", [CUT(), {"entry": 9, "time_ms": 100, "streams": []}]), "t was deleted meanwhile"),
        (lambda log: log.pages.update({4: missing()}), "t was deleted meanwhile"),
        (lambda log: log.pages.update({0: gone(4)}), "t was trimmed to 4 meanwhile"),
        (lambda log: log.pages.update({4: gone(6)}), "t was trimmed to 6 meanwhile"),
    ],
)
def test_what_others_do_meanwhile_is_noted_and_no_damage(log: ScriptedLog, meanwhile: Change, note: str) -> None:
    meanwhile(log)
    report = checked(log)
    assert report.is_sound, report.damages
    assert report.notes == [note]
    assert report.holes == 0


def test_producer_that_was_forgotten_meanwhile_is_noted_and_no_damage(log: ScriptedLog) -> None:
    log.producer = missing()
    ask = log.get

    def get(path: str, query: Mapping[str, str | int | None]) -> Any:
        found = ask(path, query)
        return {"producers": [], "next": None} if query.get("prefix") == "http:p" else found

    log.get = get  # type: ignore[method-assign]
    report = checked(log)
    assert report.is_sound, report.damages
    assert report.notes == ["producer 'p' was forgotten meanwhile"]


def test_stream_that_was_made_again_meanwhile_has_not_gone_back(log: ScriptedLog) -> None:
    log.cuts = [CUT(), CUT(tail=1, stable=1)]
    log.created_ms = 101
    log.cursors = []
    report = checked(log)
    assert report.is_sound
    assert report.notes == ["t was deleted and made again meanwhile"]


def test_producer_and_cursor_that_moved_after_the_cut_are_judged_by_now(log: ScriptedLog) -> None:
    log.cuts = [CUT(), CUT(tail=8, stable=8)]
    producer(first=6, next=8)(log)
    cursor(frontier=8, confirmed=[])(log)
    assert checked(log).is_sound
