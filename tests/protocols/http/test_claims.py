"""Producer headers to a claim, in both dialects; and what a connection remembers of epochs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog import limits
from oncelog.core.command import Columns
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import Confirmed, Fenced, Outcome
from oncelog.core.producer import NOT_TOLD, SequenceMode
from oncelog.protocols.http.actions import Submit
from oncelog.protocols.http.claims import Dialect, HeaderInvalid, claim_of, key_of
from oncelog.protocols.http.session import Session
from tests.protocols.http.requests import made, routed, status_of

DIGEST = b"d" * 16
REQUESTS = int(SequenceMode.REQUESTS)
RISING = int(SequenceMode.RISING)


def claimed(
    headers: dict[str, str], session: Session | None = None, *, strict: bool = False
) -> tuple[ProducerClaim | None, Dialect]:
    raw = {name.lower().encode(): value.encode() for name, value in headers.items()}
    return claim_of(raw, "t", 0, DIGEST, session or Session(), strict=strict)


def ds(**changes: str | None) -> dict[str, str]:
    headers: dict[str, str | None] = {"Producer-Id": "p", "Producer-Epoch": "1", "Producer-Seq": "2"}
    return _changed(headers, changes)


def x(**changes: str | None) -> dict[str, str]:
    return _changed({"X-Producer-Id": "p", "X-Producer-Seq": "2"}, changes)


def _changed(headers: dict[str, str | None], changes: dict[str, str | None]) -> dict[str, str]:
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in headers.items() if value is not None}


@pytest.mark.parametrize(
    ("headers", "claim"),
    [
        (ds(), ProducerClaim("http:p", 1, 2, 2, REQUESTS, DIGEST)),
        (ds(Producer_Mode="requests"), ProducerClaim("http:p", 1, 2, 2, REQUESTS, DIGEST)),
        (ds(Producer_Mode="rising"), ProducerClaim("http:p", 1, 2, 2, RISING, DIGEST)),
        (ds(Producer_Id="Zürich:1"), ProducerClaim("http:Zürich:1", 1, 2, 2, REQUESTS, DIGEST)),
        (ds(Producer_Seq="0009"), ProducerClaim("http:p", 1, 9, 9, REQUESTS, DIGEST)),
        (x(), ProducerClaim("x:p", NOT_TOLD, 2, 2, REQUESTS, DIGEST, True, "", False)),
        (x(X_Producer_Seq="5"), ProducerClaim("x:p", NOT_TOLD, 5, 5, REQUESTS, DIGEST, True, "", True)),
        (x(X_Producer_Session="s"), ProducerClaim("x:p", NOT_TOLD, 2, 2, REQUESTS, DIGEST, True, "s", False)),
        (x(X_Producer_Epoch="7"), ProducerClaim("x:p", 7, 2, 2, REQUESTS, DIGEST, True, "", True)),
        (
            x(X_Producer_Epoch="7", X_Producer_Session="s"),
            ProducerClaim("x:p", 7, 2, 2, REQUESTS, DIGEST, True, "s", False),
        ),
    ],
)
def test_headers_make_this_claim(headers: dict[str, str], claim: ProducerClaim) -> None:
    dialect = Dialect.X if claim.managed else Dialect.PRODUCER
    assert claimed(headers) == (claim, dialect)


def test_request_without_such_headers_claims_nothing() -> None:
    assert claimed({"Host": "h", "Stream-Seq": "1"}) == (None, Dialect.PLAIN)


NOT_NUMBERS = [
    "",
    " ",
    "-1",
    "+1",
    "1.0",
    "1e3",
    "0x1",
    "1abc",
    " 1",
    "1 ",
    "1_0",
    "٣",
    "１",
    "²",
    "1\u00a0",
    "∞",
    "nan",
]
NOT_NUMBERS += ["9" * (limits.HTTP_DIGITS_MAX + 1)]


@pytest.mark.parametrize(
    "headers",
    [
        # Partial: each one or two of those that go together.
        *({name: ds()[name] for name in names} for names in (
            ["Producer-Id"], ["Producer-Epoch"], ["Producer-Seq"], ["Producer-Id", "Producer-Epoch"],
            ["Producer-Id", "Producer-Seq"], ["Producer-Epoch", "Producer-Seq"],
        )),
        {"X-Producer-Id": "p"},
        {"X-Producer-Seq": "0"},
        {"X-Producer-Epoch": "1"},
        {"X-Producer-Session": "s"},
        {"X-Producer-Epoch": "1", "X-Producer-Session": "s"},
        {"Producer-Mode": "rising"},
        # Of the other dialect: meant as a claim, and no claim here.
        {"Producer-Session": "s"},
        {"X-Producer-Mode": "rising"},
        ds(Producer_Session="s"),
        x(X_Producer_Mode="rising"),
        # Empty, unknown, both dialects at once.
        ds(Producer_Id=""),
        x(X_Producer_Id=""),
        ds(Producer_Mode="falling"),
        ds(Producer_Mode="Rising"),
        ds() | x(),
        ds() | {"X-Producer-Id": "p"},
        ds() | {"X-Producer-Session": "s"},
        x() | {"Producer-Seq": "1"},
        # Numbers.
        *(ds(Producer_Epoch=text) for text in NOT_NUMBERS),
        *(ds(Producer_Seq=text) for text in NOT_NUMBERS),
        *(x(X_Producer_Seq=text) for text in NOT_NUMBERS),
        *(x(X_Producer_Epoch=text) for text in NOT_NUMBERS),
    ],
)  # fmt: skip
def test_headers_that_cannot_be_read_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(HeaderInvalid):
        claimed(headers)


@pytest.mark.parametrize("name", ["Stream-MessageId", "X-Idempotency-Key", "Nats-Msg-Id", "Producer-Sequence"])
@pytest.mark.parametrize("path", ["/v1/stream/t", "/v1/commit"])
def test_claim_under_a_name_that_it_does_not_have_is_refused(name: str, path: str) -> None:
    """Ignored, the retry of such a write would be stored twice."""
    body = b'{"appends": [{"topic": "t", "records": [{"json": 1}]}]}'
    request = made("POST", path, body, content_type="application/json")
    assert isinstance(routed(request), Submit)
    request.headers[name.lower().encode()] = b"1"
    assert status_of(routed(request)) == 400


def test_name_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(HeaderInvalid, match="UTF-8"):
        claim_of(
            {b"producer-id": b"\xff", b"producer-epoch": b"0", b"producer-seq": b"0"}, "t", 0, DIGEST, Session(),
            strict=False,
        )  # fmt: skip
    with pytest.raises(HeaderInvalid, match="UTF-8"):
        claim_of({b"x-producer-id": b"\xff", b"x-producer-seq": b"0"}, "t", 0, DIGEST, Session(), strict=False)


@given(st.text(max_size=30))
def test_number_is_ascii_digits_and_nothing_else(text: str) -> None:
    plain = text.isascii() and text.isdigit() and len(text) <= limits.HTTP_DIGITS_MAX
    if not plain:
        with pytest.raises(HeaderInvalid, match=r"(?i)producer-seq"):
            claimed(ds(Producer_Seq=text))
        return
    claim, _ = claimed(ds(Producer_Seq=text))
    assert claim is not None
    assert claim.first == int(text)


@pytest.mark.parametrize("method", ["POST"])
@pytest.mark.parametrize("body", [b"x", b""])
def test_mistake_is_answered_400_and_nothing_is_submitted(method: str, body: bytes) -> None:
    request = made(method, "/v1/stream/t", body, content_type="text/plain", producer_id="p", stream_closed="true")
    action = routed(request)
    assert not isinstance(action, Submit)


def test_strict_server_wants_a_session_or_an_epoch() -> None:
    with pytest.raises(HeaderInvalid, match="x_producer_strict"):
        claimed(x(), strict=True)
    assert claimed(x(X_Producer_Session="s"), strict=True)[1] == Dialect.X
    assert claimed(x(X_Producer_Epoch="1"), strict=True)[1] == Dialect.X


# --- what a connection remembers -----------------------------------------------------------------------------------


def test_request_without_epoch_belongs_to_the_epoch_last_used_on_its_connection() -> None:
    session = Session()
    session.used(("t", 0, "p"), 4)
    claim, _ = claimed(x(), session)
    assert claim is not None
    assert claim.epoch == 4
    assert key_of(claim, "t", 0) == ("t", 0, "p")
    for headers in (x(X_Producer_Id="q"), x(X_Producer_Session="s")):
        other, _ = claimed(headers, session)
        assert other is not None
        assert other.epoch == NOT_TOLD, "it is not that producer's, or a session says it exactly"
    told, _ = claimed(x(X_Producer_Epoch="2"), session)
    assert told is not None
    assert told.epoch == 2, "what the client says counts"


def test_other_topics_and_partitions_are_other_producers() -> None:
    session = Session()
    session.used(("t", 0, "p"), 4)
    assert session.epoch_of(("u", 0, "p")) is None
    assert session.epoch_of(("t", 1, "p")) is None


def submitted(session: Session, seq: int, body: bytes) -> tuple[ProducerClaim, Submit]:
    """What a request on this connection becomes, and how its outcome is told."""
    request = made("POST", "/v1/stream/t", body, content_type="text/plain", x_producer_id="p", x_producer_seq=str(seq))
    action = routed(request, session)
    assert isinstance(action, Submit)
    assert isinstance(action.command, Columns)
    assert action.command.claim is not None
    return action.command.claim, action


def told(action: Submit, outcome: Outcome) -> int:
    return int(action.render(outcome)[9:12])


def test_restart_pipelined_behind_its_past_does_not_inherit_the_old_epoch() -> None:
    """1. A connection uses epoch 1. 2. Its client restarts: sequences 0 and 1 leave at once. 3. Only the answer to 0
    names epoch 2; sequence 1 must not have been sent off with epoch 1, or it would be fenced by its own run."""
    session = Session()
    first, action = submitted(session, 0, b"a")
    assert first.epoch == NOT_TOLD
    assert told(action, Confirmed(1, 0, 1, epoch=1, sequence=0)) == 201
    following, _ = submitted(session, 1, b"b")
    assert following.epoch == 1

    restart, restarted = submitted(session, 0, b"other")
    behind, _ = submitted(session, 1, b"c")
    assert restart.epoch == NOT_TOLD
    assert behind.epoch == NOT_TOLD
    assert told(restarted, Confirmed(1, 2, 3, epoch=2, sequence=0)) == 201
    later, _ = submitted(session, 2, b"d")
    assert later.epoch == 2


def test_duplicate_tells_the_epoch_and_a_refusal_does_not() -> None:
    session = Session()
    _, retried = submitted(session, 3, b"a")
    assert told(retried, Confirmed(1, 0, 1, duplicate=True, epoch=6, sequence=3)) == 204
    assert session.epoch_of(("t", 0, "p")) == 6
    _, fenced = submitted(session, 4, b"b")
    assert told(fenced, Fenced(9, 6)) == 403
    assert session.epoch_of(("t", 0, "p")) == 6, "a fenced connection stays fenced"


def test_connection_remembers_a_bounded_number_of_producers_and_drops_the_oldest() -> None:
    session = Session()
    for number in range(limits.HTTP_CONNECTION_EPOCHS_MAX):
        session.used(("t", 0, str(number)), 1)
    session.used(("t", 0, "0"), 2)
    session.used(("t", 0, "new"), 1)
    assert session.epoch_of(("t", 0, "0")) == 2, "it was used again since"
    assert session.epoch_of(("t", 0, "1")) is None
    assert session.epoch_of(("t", 0, "new")) == 1
