"""Control lines: what is taken, in pieces of any size, and what ends the connection with which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocols.nats import parser
from oncelog.protocols.nats.parser import Connect, Message, Parser, Ping, Pong, Subscribe, Unsubscribe

SESSION = (
    b'CONNECT {"verbose":false}\r\nPING\r\npong\r\nSUB a.*  1\r\nsub b.> workers 2\r\nUNSUB 1 5\r\nUNSUB 2\r\n'
    b"PUB a.b 5\r\nhello\r\nPUB  a.b   _INBOX.1   0\r\n\r\n"
    b"HPUB a.c reply 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHPUB a.d 0 2\r\nok\r\n"
)
OPERATIONS = [
    Connect(b'{"verbose":false}'),
    Ping(),
    Pong(),
    Subscribe("a.*", "", "1"),
    Subscribe("b.>", "workers", "2"),
    Unsubscribe("1", 5),
    Unsubscribe("2", 0),
    Message("a.b", "", b"", b"hello"),
    Message("a.b", "_INBOX.1", b"", b""),
    Message("a.c", "reply", b"NATS/1.0\r\n\r\n", b"hi"),
    Message("a.d", "", b"", b"ok"),
]


def test_parser_takes_a_session_whole() -> None:
    assert Parser(1000).feed(SESSION) == OPERATIONS


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_parser_takes_a_session_in_pieces(size: int) -> None:
    feed = Parser(1000)
    found = []
    for at in range(0, len(SESSION), size):
        found += feed.feed(SESSION[at : at + size])
    assert found == OPERATIONS
    assert not feed.failure


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        (b"HELLO\r\n", parser.PARSER_ERROR),
        (b"PUB\r\n", parser.PARSER_ERROR),
        (b"PUB a\r\n", parser.PARSER_ERROR),
        (b"PUB a x\r\n", parser.PARSER_ERROR),
        (b"PUB a -1\r\n", parser.PARSER_ERROR),
        (b"PUB a b c d\r\n", parser.PARSER_ERROR),
        (b"PUB a 2\r\nabcd\r\n", parser.PARSER_ERROR),
        (b"PUB a 1001\r\n", parser.PAYLOAD_TOO_LARGE),
        (b"PUB a 99999999999999999999999999\r\n", parser.PAYLOAD_TOO_LARGE),
        (b"HPUB a 9 3\r\nabc\r\n", parser.PARSER_ERROR),
        (b"PUB a..b 0\r\n\r\n", parser.INVALID_SUBJECT),
        (b"PUB .a 0\r\n\r\n", parser.INVALID_SUBJECT),
        (b"PUB a\xff 0\r\n\r\n", parser.INVALID_SUBJECT),
        (b"SUB\r\n", parser.PARSER_ERROR),
        (b"SUB \xff 1\r\n", parser.PARSER_ERROR),
        (b"UNSUB 1 x\r\n", parser.PARSER_ERROR),
        (b"PUB " + b"a" * 5000 + b" 0\r\n", parser.LINE_TOO_LONG),
        (b"a" * 5000, parser.LINE_TOO_LONG),
        (b"CONNECT " + b"a" * 70_000, parser.LINE_TOO_LONG),
    ],
)
def test_mistake_ends_the_operations(line: bytes, failure: str) -> None:
    feed = Parser(1000)
    assert feed.feed(b"PING\r\n" + line) == [Ping()]
    assert feed.failure == failure
    assert feed.feed(b"PING\r\n") == []


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_parser_never_raises_and_keeps_little(pieces: list[bytes]) -> None:
    feed = Parser(100)
    for piece in pieces:
        feed.feed(piece)
    assert sum(map(len, feed._chunks)) <= 8 * 60


def test_large_payload_in_many_pieces_is_joined_once() -> None:
    feed = Parser(10_000_000)
    assert feed.feed(b"PUB a 1000000\r\n") == []
    for _ in range(999):
        assert feed.feed(b"x" * 1000) == []
    assert feed.feed(b"x" * 1000 + b"\r\n") == [Message("a", "", b"", b"x" * 1_000_000)]
