"""P9 over HTTP: bytes on disk that are not what was written are named to whoever reads them, and end nothing."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from crc32c import crc32c

from oncelog.core import batch as codec
from oncelog.core.message_id import content_digest
from oncelog.core.rows import Key, Table
from oncelog.servers import counts
from oncelog.storage.index.interface import index_key
from oncelog.storage.index.lmdb_index import row_key
from tests.servers.running import Running, running
from tests.servers.talking import Answer

VALUE = b"a value of bad" * 20
TEXT = {"Content-Type": "text/plain"}
RAW = {"Accept": "application/vnd.oncelog.batches"}
BAD, GOOD = "/v1/stream/bad", "/v1/stream/good"

Damage = Callable[[bytearray, int, int], None]
"""Changes the file's bytes; told where a batch of one value, `VALUE`, begins and ends."""


@contextmanager
def damaged(directory: Path, damage: Damage) -> Iterator[Running]:
    """A server whose stream `bad` was damaged before it started, and whose `good` was not. Before, since what a server
    has just written it reads from memory."""
    with running(directory) as server:
        for path in (BAD, GOOD):
            server.ask("PUT", path, headers=TEXT)
        server.ask("POST", BAD, VALUE, headers={**TEXT, "Stream-Message-Id": "m"})
        server.ask("POST", GOOD, b"intact", headers=TEXT)
    (segment,) = (directory / "journal").glob("segment-*")
    content = bytearray(segment.read_bytes())
    at = content.index(VALUE)
    begin = at - len(codec.encode_one(VALUE, 1)) + len(VALUE) + 1
    damage(content, begin, at + len(VALUE) + 1)
    with segment.open("r+b") as file:
        file.write(content)
    with running(directory, long_poll_ms=300) as server:
        yield server
        assert server.ask("GET", GOOD).body == b"intact"
        assert server.ask("POST", GOOD, b"on", headers=TEXT).status == 204


def assert_named(answer: Answer) -> None:
    assert (answer.status, answer.code) == (500, "damaged")
    assert answer.json["file"].startswith("segment-")
    assert answer.json["position"] > 0


def assert_passable(answer: Answer, server: Running) -> None:
    """Named, with where to read on behind it."""
    assert_named(answer)
    assert answer.json["next"] == 1
    assert "from offset 1 on" in answer.json["hint"]
    assert server.ask("GET", f"{BAD}?offset=1").status == 200


@pytest.mark.parametrize("byte", [8, 9, 10, 11, codec.MAGIC_AT, codec.CRC_AT, codec.RECORD_COUNT_AT, 70])
def test_no_byte_that_means_anything_is_served_damaged(tmp_path: Path, byte: int) -> None:
    def flip(content: bytearray, begin: int, _end: int) -> None:
        content[begin + byte] ^= 0x10

    with damaged(tmp_path, flip) as server:
        assert_passable(server.ask("GET", BAD), server)
        assert_passable(server.ask("GET", BAD, headers=RAW), server)
        assert_passable(server.ask("GET", f"{BAD}?offset=0&live=long-poll"), server)
        assert b"event: data" not in server.ask("GET", f"{BAD}?offset=0&live=sse").body


@pytest.mark.from_source
def test_damage_is_said_aloud_with_the_stream_that_it_is_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def flip(content: bytearray, _begin: int, end: int) -> None:
        content[end - 10] ^= 0x01

    always = mock.patch.object(counts, "DAMAGE_SAID_AGAIN_S", 0.0)
    with always, damaged(tmp_path, flip) as server:
        for target in (BAD, f"{BAD}?offset=0&live=long-poll", f"{BAD}?offset=0&live=sse", "/v1/receipts/bad/m"):
            server.ask("GET", target)
            told = capsys.readouterr().err
            assert re.fullmatch(r"oncelog: stream 'bad', partition 0: .+ in segment-\d+ at byte \d+\n", told), target


def test_damage_at_one_place_is_said_once_in_a_while(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def flip(content: bytearray, _begin: int, end: int) -> None:
        content[end - 10] ^= 0x01

    with damaged(tmp_path, flip) as server:
        for _ in range(20):
            assert_named(server.ask("GET", BAD))
        assert capsys.readouterr().err.count("oncelog: ") == 1


def break_records(content: bytearray, begin: int, end: int) -> None:
    """The checksum is right, and no record can be told from the next."""
    content[begin + codec.HEADER_BYTES] ^= 0x7F
    checksum = crc32c(bytes(content[begin + codec.ATTRIBUTES_AT : end]))
    content[begin + codec.CRC_AT : begin + codec.ATTRIBUTES_AT] = checksum.to_bytes(4, "big")


@pytest.mark.from_source
def test_batch_that_cannot_be_decoded_is_damage_to_those_who_want_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    always = mock.patch.object(counts, "DAMAGE_SAID_AGAIN_S", 0.0)
    with always, damaged(tmp_path, break_records) as server:
        for target in (BAD, f"{BAD}?offset=0&live=long-poll"):
            answer = server.ask("GET", target)
            assert_passable(answer, server)
            assert "the batch at offset 0 cannot be decoded" in answer.json["detail"]
            assert capsys.readouterr().err.startswith("oncelog: stream 'bad', partition 0: the batch at offset 0 ")
        assert b"event: data" not in server.ask("GET", f"{BAD}?offset=0&live=sse").body


def test_receipt_of_a_damaged_record_names_the_damage(tmp_path: Path) -> None:
    def flip(content: bytearray, _begin: int, end: int) -> None:
        content[end - 10] ^= 0x01

    with damaged(tmp_path, flip) as server:
        assert_named(server.ask("GET", "/v1/receipts/bad/m"))


# --- the index -----------------------------------------------------------------------------------------------------

BY_P = {**TEXT, "Producer-Id": "p", "Producer-Epoch": "0"}


def flip_behind(path: Path, needle: bytes, distance: int = 0) -> None:
    """Change the byte behind every occurrence: of a key in LMDB's pages that is the first one of its value."""
    content = bytearray(path.read_bytes())
    at = content.find(needle)
    assert at >= 0
    while at >= 0:
        content[at + len(needle) + distance] ^= 0x40
        at = content.find(needle, at + 1)
    path.write_bytes(content)


@contextmanager
def damaged_index(directory: Path, damage: Callable[[Path], None]) -> Iterator[Running]:
    """A server whose index was damaged before it started: in what it knows of the stream `bad`, its producer p and its
    message id m. Other streams, producers and ids go on."""
    with running(directory) as server:
        for path in (BAD, GOOD):
            server.ask("PUT", path, headers=TEXT)
        server.ask("POST", BAD, b"v", headers={**BY_P, "Producer-Seq": "0"})
        server.ask("POST", BAD, VALUE, headers={**TEXT, "Stream-Message-Id": "m"})
        server.ask("POST", GOOD, b"intact", headers=TEXT)
    damage(directory / "index")
    with running(directory) as server:
        yield server
        assert server.ask("GET", GOOD).body == b"intact"
        assert server.ask("POST", GOOD, b"on", headers={**TEXT, "Stream-Message-Id": "m"}).status == 204
        assert server.ask("GET", "/health").status == 200


def assert_index_named(answer: Answer) -> None:
    assert (answer.status, answer.code) == (500, "damaged")
    assert "index" in answer.json["file"]
    assert "byte -1" not in answer.json["detail"]
    assert -1 not in answer.json.values()


def test_damaged_row_of_a_producer_is_told_to_whoever_needs_it(tmp_path: Path) -> None:
    def damage(index: Path) -> None:
        flip_behind(index / "data.mdb", index_key_of(Table.PRODUCER, (2, "http:p")))

    with damaged_index(tmp_path, damage) as server:
        for _ in range(2):
            assert_index_named(server.ask("POST", BAD, b"w", headers={**BY_P, "Producer-Seq": "1"}))
            assert_index_named(server.ask("GET", "/v1/producers/bad/p"))
            assert_index_named(server.ask("GET", "/v1/producers?topic=bad"))
        other = {**BY_P, "Producer-Id": "q", "Producer-Seq": "0"}
        assert server.ask("POST", BAD, b"w", headers=other).status == 200
        assert server.ask("GET", BAD).body == b"v" + VALUE + b"w"


@pytest.mark.parametrize("table", [Table.TOPIC, Table.STREAM])
def test_damaged_row_of_a_stream_is_told_to_readers_and_writers(tmp_path: Path, table: Table) -> None:
    def damage(index: Path) -> None:
        flip_behind(index / "data.mdb", index_key_of(table, "bad" if table is Table.TOPIC else 2))

    with damaged_index(tmp_path, damage) as server:
        for method, path in (("GET", BAD), ("GET", f"{BAD}?offset=-1&live=sse"), ("POST", BAD), ("GET", "/v1/cut")):
            body = b"w" if method == "POST" else b""
            assert_index_named(server.ask(method, path, body, headers=TEXT if body else {}))
        assert server.ask("HEAD", BAD).status == 500


def test_damage_that_a_write_meets_is_said_aloud_with_its_stream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def damage(index: Path) -> None:
        flip_behind(index / "data.mdb", index_key_of(Table.PRODUCER, (2, "http:p")))

    with damaged_index(tmp_path, damage) as server:
        assert_index_named(server.ask("POST", BAD, b"w", headers={**BY_P, "Producer-Seq": "1"}))
        assert capsys.readouterr().err.startswith("oncelog: stream 'bad', partition 0: ")


def test_damaged_block_of_ids_is_told_to_those_that_it_may_hold(tmp_path: Path) -> None:
    def damage(index: Path) -> None:
        (run,) = index.glob("ids-*.run")
        flip_behind(run, content_digest(VALUE))

    with damaged_index(tmp_path, damage) as server:
        for _ in range(2):
            assert_index_named(server.ask("POST", BAD, VALUE, headers={**TEXT, "Stream-Message-Id": "m"}))
            assert_index_named(server.ask("GET", "/v1/receipts/bad/m"))
        assert server.ask("POST", BAD, b"w", headers={**TEXT, "Stream-Message-Id": "new"}).status == 204
        assert server.ask("GET", BAD).body == b"v" + VALUE + b"w"


def index_key_of(table: Table, key: Key) -> bytes:
    data = index_key(table, key)
    assert data is not None
    return row_key(table, data)
