"""P9 over HTTP: bytes on disk that are not what was written are named to whoever reads them, and end nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crc32c import crc32c

from oncelog.core import batch as codec
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


@pytest.mark.parametrize("byte", [8, 9, 10, 11, codec.MAGIC_AT, codec.CRC_AT, codec.RECORD_COUNT_AT, 70])
def test_no_byte_that_means_anything_is_served_damaged(tmp_path: Path, byte: int) -> None:
    def flip(content: bytearray, begin: int, _end: int) -> None:
        content[begin + byte] ^= 0x10

    with damaged(tmp_path, flip) as server:
        assert_named(server.ask("GET", BAD))
        assert_named(server.ask("GET", BAD, headers=RAW))
        assert_named(server.ask("GET", f"{BAD}?offset=0&live=long-poll"))
        assert b"event: data" not in server.ask("GET", f"{BAD}?offset=0&live=sse").body


def break_records(content: bytearray, begin: int, end: int) -> None:
    """The checksum is right, and no record can be told from the next."""
    content[begin + codec.HEADER_BYTES] ^= 0x7F
    checksum = crc32c(bytes(content[begin + codec.ATTRIBUTES_AT : end]))
    content[begin + codec.CRC_AT : begin + codec.ATTRIBUTES_AT] = checksum.to_bytes(4, "big")


def test_batch_that_cannot_be_decoded_is_damage_to_those_who_want_its_records(tmp_path: Path) -> None:
    with damaged(tmp_path, break_records) as server:
        for target in (BAD, f"{BAD}?offset=0&live=long-poll"):
            answer = server.ask("GET", target)
            assert_named(answer)
            assert "the batch at offset 0 cannot be decoded" in answer.json["detail"]
        assert b"event: data" not in server.ask("GET", f"{BAD}?offset=0&live=sse").body


def test_receipt_of_a_damaged_record_names_the_damage(tmp_path: Path) -> None:
    def flip(content: bytearray, _begin: int, end: int) -> None:
        content[end - 10] ^= 0x01

    with damaged(tmp_path, flip) as server:
        assert_named(server.ask("GET", "/v1/receipts/bad/m"))
