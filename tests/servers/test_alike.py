"""Appends that are like the one before them take a short way in and out. It must lead where the long one does."""

import itertools
import re
from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog import limits
from oncelog.core.command import Append, CloseStream, Columns, Command, CreateTopic
from oncelog.core.outcome import Confirmed, Fenced, Outcome, Overloaded, SequenceGap, StreamDone, TopicDone
from oncelog.protocols.http import parser, template
from oncelog.protocols.http.plain import LENGTH_DIGITS_MAX
from oncelog.servers.http.connection import Connection
from oncelog.servers.http.settings import HttpSettings
from tests.servers.confirming import Joined

T = TypeVar("T")

SMALL = HttpSettings(header_bytes_max=1 * limits.KIB, body_bytes_max=1 * limits.KIB, pipelined_max=4)

# Heads that clients send; {n} is a number, {id} a text.
HEADS = [
    "Content-Type: text/plain",
    "Content-Type: application/json",
    "Content-Type: application/vnd.oncelog.batches",
    "content-type: text/plain\r\nUser-Agent: node\r\nConnection: keep-alive",
    "Content-Type: text/plain\r\nProducer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: {n}",
    "producer-seq: {n}\r\nContent-Type: text/plain\r\nproducer-id: p\r\nproducer-epoch: 1\r\nproducer-mode: rising",
    "Content-Type: application/json\r\nProducer-Id: p\r\nProducer-Seq: {n}\r\nProducer-Epoch: 0",
    "Content-Type: text/plain\r\nProducer-Id: p\r\nProducer-Seq: {n}",
    "Content-Type: text/plain\r\nX-Producer-Id: p\r\nX-Producer-Session: s\r\nX-Producer-Seq: {n}",
    "Content-Type: text/plain\r\nX-Producer-Id: p\r\nX-Producer-Epoch: 1\r\nX-Producer-Seq: {n}",
    "Content-Type: text/plain\r\nX-Producer-Id: p\r\nX-Producer-Seq: {n}",
    "Content-Type: text/plain\r\nX-Producer-Id: p\r\nX-Producer-Seq: {n}\r\nProducer-Seq: {n}",
    "Content-Type: text/plain\r\nStream-Message-Id: {id}",
    "Idempotency-Key: {id}\r\nContent-Type: text/plain",
    "Idempotency-Key: {id}\r\nStream-Message-Id: {id}\r\nContent-Type: text/plain",
    "Content-Type: text/plain\r\nStream-Message-Id: {id}\r\nProducer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: {n}",
    "Content-Type: text/plain\r\nIf-Match: {n}",
    "Content-Type: text/plain\r\nStream-Seq: {id}",
    "Content-Type: text/plain\r\nStream-Closed: true",
    "Content-Type: text/plain\r\nConnection: close",
    "Content-Type: text/plain\r\nX-Long: " + 700 * "x",
]
ODD_NUMBERS = ["00", "007", "9" * 18, "9" * 19, "9" * 20, "1_0", "+1", "-1", "", " 1", "1 ", "1a", "\u00b2"]
ODD_IDS = ["b b", "", " a", "a ", "\u00e9", "a\tb", "x" * 300, "a: b", "Content-Length: 3"]
ODD_LENGTHS = ["0", "00000001", "000000001", "5", "99999999", "", "1x", "+1", "1025"]
BODIES = [b"a", b"1", b"[1]", b"[1,2]", b"12", b"7" * 120, b"1" * 1024]
ODD_BODIES = [b"", b"[]", b"{", b"\xff", b"1" * 1025]
TARGETS = ["/v1/stream/t", "/stream/t", "/v1/stream/u?partition=1"]
ODD_TARGETS = ["/v1/stream/%", "/v1/stream/__ds/a", "/v1/commit"]


def seldom(draw: st.DrawFn, rarity: int) -> bool:
    """True once in a while. Not of 0, which is tried more often than the rest."""
    return draw(st.integers(0, rarity)) == rarity


def one_of(draw: st.DrawFn, usual: Sequence[T], odd: Sequence[T]) -> T:
    return draw(st.sampled_from(odd if seldom(draw, 9) else usual))


@st.composite
def requests(draw: st.DrawFn) -> list[bytes]:
    """Requests of one client, most of them like the one before."""
    out: list[bytes] = []
    target, head = TARGETS[0], draw(st.sampled_from(HEADS))
    length_first = draw(st.booleans())
    for number in range(draw(st.integers(3, 7))):
        if seldom(draw, 7):
            target, head = one_of(draw, TARGETS, ODD_TARGETS), draw(st.sampled_from(HEADS))
        body = one_of(draw, BODIES, ODD_BODIES)
        length = str(len(body))
        if seldom(draw, 11):
            length = draw(st.sampled_from(ODD_LENGTHS))
        value = str(number + draw(st.sampled_from([0, 7, 96])))
        lines = head.replace("{n}", one_of(draw, [value], ODD_NUMBERS)).replace("{id}", one_of(draw, [value], ODD_IDS))
        lines = f"Content-Length: {length}\r\n{lines}" if length_first else f"{lines}\r\nContent-Length: {length}"
        data = f"POST {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n".encode("latin-1") + body
        if seldom(draw, 7):
            at = draw(st.integers(0, len(data) - 1))
            put = draw(st.one_of(st.binary(max_size=2), st.sampled_from([b"\r", b"\n", b"\r\n", b" ", b"0", b":"])))
            data = data[:at] + put + data[at + draw(st.integers(0, 2)) :]
        out.append(data)
    return out


@st.composite
def reads(draw: st.DrawFn) -> list[bytes]:
    """Requests as they come from the socket: one by one, several at once, or in pieces."""
    out = [b""]
    for data in draw(requests()):
        if seldom(draw, 5):
            at = draw(st.integers(0, len(data)))
            out += [data[:at], data[at:]]
        elif seldom(draw, 3):
            out[-1] += data
        else:
            out.append(data)
    return [data for data in out if data]


def outcome_of(command: Command, kind: int) -> Outcome:
    if isinstance(command, CreateTopic):
        return TopicDone(1, [1], True)
    if isinstance(command, CloseStream):
        return StreamDone(1, 0, 0, 0, True, True)
    assert isinstance(command, Append | Columns)
    if kind == 1:
        return Overloaded(1, 2)
    epoch, sequence = (-1, -1) if command.claim is None else (max(command.claim.epoch, 1), command.claim.last)
    if kind == 2 and command.claim is not None:
        return Fenced(7, 0)
    if kind == 3 and command.claim is not None:
        return SequenceGap(sequence - 1, sequence)
    count = command.count if isinstance(command, Append) else len(command.values)
    return Confirmed(1, 5, 5 + count, 9, kind == 4, False, epoch, sequence, kind == 5)


COUNTED = "confirms records duplicates commits refusals malformed cut_stalled connections_refused".split()


def told(came: list[bytes], kinds: list[int], answer_each: bool) -> tuple[object, ...]:
    """All that a client, the engine and a monitor see of it."""
    client = Joined(SMALL)
    outcomes = iter(kinds * 100)
    for data in came:
        client.receive(data)
        if answer_each:
            client.engine.answer(lambda command: outcome_of(command, next(outcomes)))
    client.engine.answer(lambda command: outcome_of(command, next(outcomes)))
    connection = client.connection
    return (
        client.engine.commands,
        b"".join(client.transport.written),
        [getattr(client.server.counts, name) for name in COUNTED],
        client.transport.is_closed,
        client.transport.is_ended,
        client.transport.reads_on,
        connection.is_closing,
        connection.request_at,
        connection.sent_bytes,
        len(connection.slots),
        [sorted(held) for held in client.server.early.held.values()],
    )


def told_the_long_way(came: list[bytes], kinds: list[int], answer_each: bool) -> tuple[object, ...]:
    """httptools reads every byte, and every answer waits in line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "plain_request", lambda *_: None)
        patch.setattr(Connection, "sent_alone", lambda *_: False)
        return told(came, kinds, answer_each)


def post(headers: str, body: bytes = b"a", target: str = "/v1/stream/t") -> bytes:
    return (
        f"POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n{headers}\r\n\r\n".encode("latin-1")
        + body
    )


@settings(max_examples=500)
@given(reads(), st.lists(st.integers(0, 9), min_size=1, max_size=5), st.booleans())
def test_the_short_way_leads_where_the_long_one_does(came: list[bytes], kinds: list[int], answer_each: bool) -> None:
    assert told(came, kinds, answer_each) == told_the_long_way(came, kinds, answer_each)


@pytest.mark.parametrize("is_length_first", [True, False])
@pytest.mark.parametrize(
    ("headers", "values"),
    [
        ("Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: {}", ODD_NUMBERS),
        ("X-Producer-Id: p\r\nX-Producer-Session: s\r\nX-Producer-Seq: {}", ODD_NUMBERS),
        ("Stream-Message-Id: {}", ODD_IDS),
        ("Idempotency-Key: {}", ODD_IDS),
    ],
)
def test_odd_value_behind_a_usual_one_is_taken_or_refused_as_ever(
    headers: str, values: list[str], is_length_first: bool
) -> None:
    for value, before in itertools.product(values, ("1", "as long")):
        # What stands before it has the same width or another one: both are guessed by it.
        came = []
        for each in ("1" * max(1, len(value)) if before == "as long" else before, value, "2"):
            lines = ["Content-Length: 1", "Content-Type: a/b\r\n" + headers.format(each)]
            head = "\r\n".join(lines if is_length_first else reversed(lines))
            came.append(f"POST /v1/stream/t HTTP/1.1\r\nHost: h\r\n{head}\r\n\r\nx".encode("latin-1"))
        seen = told(came, [0], True)
        assert seen[0], "the usual ones reach the engine"
        assert seen == told_the_long_way(came, [0], True), value


# --- which requests take it ------------------------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Columns | None]:
    """What became of every request that was held against a template: a command, or None."""
    seen: list[Columns | None] = []
    command = template.AppendTemplate.command

    def noted(self: template.AppendTemplate, data: bytes, at: int) -> Columns | None:
        depth.append(None)
        found = command(self, data, at)
        depth.pop()
        if not depth:  # it asks itself again when values are longer than the last ones
            seen.append(found)
        return found

    depth: list[None] = []
    monkeypatch.setattr(template.AppendTemplate, "command", noted)
    return seen


@pytest.mark.from_source
@pytest.mark.parametrize(
    "headers",
    [
        "Content-Type: text/plain",
        "Content-Type: application/json",
        "Content-Type: a/b\r\nProducer-Seq: {n}\r\nProducer-Id: p\r\nProducer-Epoch: 0",
        "Content-Type: a/b\r\nX-Producer-Id: p\r\nX-Producer-Session: s\r\nX-Producer-Seq: {n}",
        "Stream-Message-Id: {n}\r\nContent-Type: a/b",
        "Content-Type: a/b\r\nidempotency-key: {n}",
    ],
)
def test_appends_that_differ_in_length_and_number_alone_take_the_short_way(
    taken: list[Columns | None], headers: str
) -> None:
    client = Joined()
    for number in (8, 9, 10, 1000, 3):
        client.receive(post(headers.replace("{n}", str(number)), b"7" * number))
    assert taken == client.engine.commands[1:]


@pytest.mark.from_source
@pytest.mark.parametrize(
    "headers",
    [
        "Content-Type: a/b\r\nX-Producer-Id: p\r\nX-Producer-Seq: 3",
        "Content-Type: a/b\r\nX-Producer-Id: p\r\nX-Producer-Epoch: 1\r\nX-Producer-Seq: 3",
        "Content-Type: a/b\r\nIf-Match: 0",
        "Content-Type: a/b\r\nStream-Seq: 0",
        "Content-Type: a/b\r\nStream-Closed: true",
        "Content-Type: a/b\r\nStream-Message-Id: a\r\nProducer-Seq: 0\r\nProducer-Id: p\r\nProducer-Epoch: 0",
        "Content-Type: a/b\r\nStream-Message-Id: a\r\nIdempotency-Key: a",
        "Content-Type: a/b\r\nX-Long: " + "x" * limits.HTTP_TEMPLATE_HEAD_BYTES_MAX,
    ],
)
def test_appends_that_say_more_are_no_template(taken: list[Columns | None], headers: str) -> None:
    client = Joined()
    for _ in range(3):
        client.receive(post(headers))
    assert (len(client.engine.commands), taken) == (3, [])


@pytest.mark.from_source
@pytest.mark.parametrize(
    "other",
    [
        post("Content-Type: a/c"),
        post("Content-Type: a/b", target="/v1/stream/u"),
        post("Content-Type: a/b", b""),
        post("Content-Type: a/b", b"x" * (SMALL.body_bytes_max + 1)),
        post("Content-Type: a/b").replace(b"Length: 1", b"Length: " + b"0" * LENGTH_DIGITS_MAX + b"1"),
        post("Content-Type: a/b").replace(b"Length: 1", b"Length: x"),
        post("Content-Type: a/b")[:-1],
        post("Content-Type: a/b").replace(b"POST", b"PUT"),
    ],
)
def test_anything_else_is_read_as_if_there_were_no_template(taken: list[Columns | None], other: bytes) -> None:
    client = Joined(SMALL)
    client.receive(post("Content-Type: a/b"))
    client.receive(other)
    assert taken == [None]


@pytest.mark.from_source
def test_write_behind_a_read_waits_also_if_it_is_like_the_one_before(taken: list[Columns | None]) -> None:
    client = Joined()
    client.connection.is_stalled = True  # so that the read does not begin
    append = post("Content-Type: a/b")
    client.receive(append)
    client.receive(b"HEAD /v1/stream/t HTTP/1.1\r\nHost: h\r\n\r\n" + append)
    client.receive(append)
    assert (len(client.engine.commands), len(client.connection.slots), taken) == (1, 4, [None])


@pytest.mark.from_source
def test_client_that_never_sends_two_alike_is_looked_at_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    monkeypatch.setattr(template, "AppendTemplate", lambda *_args, **_more: looks.append(1))
    client = Joined()
    for number in range(1000):
        client.receive(post(f"Content-Type: a/b\r\nX-Number: {number}"))
        client.engine.answer(lambda command: outcome_of(command, 0))
    assert len(looks) == 10


@pytest.mark.from_source
def test_pipelined_appends_that_are_alike_hold_back_the_reading(taken: list[Columns | None]) -> None:
    client = Joined(SMALL)
    append = post("Content-Type: a/b")
    client.receive(append)
    client.receive(append * 3)
    assert (len(taken), client.transport.reads_on) == (3, False)
    client.engine.answer(lambda command: outcome_of(command, 0))
    assert client.transport.reads_on
    assert len(b"".join(client.transport.written).split(b"204 No Content")) == 5


@pytest.mark.from_source
def test_overloaded_engine_holds_back_the_reading_of_appends_that_are_alike(
    taken: list[Columns | None],
) -> None:
    client = Joined(SMALL)
    append = post("Content-Type: a/b")
    client.receive(append)
    client.engine.overloaded = True
    client.receive(append)
    assert (len(taken), client.transport.reads_on) == (1, False)


# --- answers that must not take it -----------------------------------------------------------------------------------


def test_last_answer_says_so_and_closes_also_if_it_comes_after_the_end_of_the_requests() -> None:
    client = Joined()
    append = post("Content-Type: a/b")
    client.receive(append)
    client.engine.answer(lambda command: outcome_of(command, 0))
    client.receive(append)
    client.connection.eof_received()
    client.engine.answer(lambda command: outcome_of(command, 0))
    first, last = client.transport.written
    assert (b"Connection: close" in first, b"Connection: close" in last) == (False, True)
    assert client.transport.is_closed


def test_last_answer_says_so_also_if_it_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Joined()
    monkeypatch.setattr(client.engine, "submit", lambda command, reply: reply(outcome_of(command, 1)))
    client.receive(post("Content-Type: a/b\r\nConnection: close"))
    assert b"Connection: close" in b"".join(client.transport.written)
    assert client.transport.is_ended


def test_answer_to_head_is_its_head_also_if_it_is_alone_in_line() -> None:
    client = Joined()
    client.receive(b"HEAD /v1/topics/t HTTP/1.1\r\nHost: h\r\n\r\n")
    client.engine.answer(lambda _: Overloaded(1, 2))
    assert b"".join(client.transport.written).endswith(b"\r\nContent-Length: 0\r\n\r\n")


def test_client_that_waits_for_a_word_gets_it_behind_an_answer_that_was_alone_in_line() -> None:
    client = Joined()
    append = post("Content-Type: a/b")
    client.receive(append)
    client.receive(post("Content-Type: a/b\r\nExpect: 100-continue").removesuffix(b"a"))
    client.engine.answer(lambda command: outcome_of(command, 0))
    assert client.transport.written[-1].startswith(b"HTTP/1.1 100 ")


def test_nothing_is_written_for_a_client_that_has_gone() -> None:
    client = Joined()
    append = post("Content-Type: a/b")
    for _ in range(2):
        client.receive(append)
    client.connection.connection_lost(None)
    client.engine.answer(lambda command: outcome_of(command, 0))
    assert (client.transport.written, client.server.counts.confirms) == ([], 2)


# --- 100 Continue ----------------------------------------------------------------------------------------------------

BAD = post("Content-Type: a/b\r\nStream-Message-Id:")
"""Refused at once, before the engine has a say."""


@pytest.mark.parametrize(
    ("came", "statuses"),
    [
        (BAD + post("Content-Type: a/b\r\nExpect: x"), [400, 417]),
        (BAD + post("Content-Type: a/b\r\nExpect: 100-continue")[:-1], [400, 100]),
        (BAD + post("Content-Type: a/b") + post("Content-Type: a/b\r\nExpect: 100-continue")[:-1], [400, 204, 100]),
        (
            BAD + b"POST /v1/stream/t HTTP/1.1\r\nHost: h\r\nContent-Type: a/b\r\nExpect: 100-continue\r\n"
            b"Content-Length: 5000000\r\n\r\n",
            [400, 413],
        ),
    ],
    ids=["expects something else", "alone", "behind one that is not in line yet", "too large"],
)
def test_word_to_go_on_is_said_in_its_turn_and_only_if_it_is_meant(came: bytes, statuses: list[int]) -> None:
    client = Joined()
    client.receive(came)
    client.engine.answer(lambda command: outcome_of(command, 0))
    said = re.findall(rb"HTTP/1\.1 (\d{3}) ", b"".join(client.transport.written))
    assert [int(status) for status in said] == statuses
