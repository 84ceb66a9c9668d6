"""Bodies of commits, publishes and the rest: each member that is wrong is named, and none can raise a surprise."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core import batch as codec
from oncelog.core import command as c
from oncelog.core.flat import ProducerClaim
from oncelog.core.names import command_refused
from oncelog.core.producer import SequenceMode
from oncelog.protocols.http.actions import Action, Done, Submit
from oncelog.protocols.http.claims import OF_ONE_APPEND
from oncelog.protocols.http.commit_body import BodyInvalid, commit_of, publish_of
from tests.protocols.http.requests import NOW_MS, made, routed, status_of

COMMIT: dict[str, Any] = {
    "commit_id": "order-7",
    "producer": {"name": "shop", "epoch": 1, "sequence": 12},
    "appends": [
        {
            "topic": "orders",
            "partition": 0,
            "message_id": "o7",
            "records": [
                {"json": {"order": 7}},
                {"value": "text"},
                {"base64": "AAE=", "key": "k", "headers": {"h": "v", "b": {"base64": "AA=="}, "n": None},
                "timestamp_ms": 5},
                {"value": "", "key": {"base64": "/w=="}},
            ],
        },
        {"topic": "stock", "records": [{"value": "-1"}]},
    ],
    "conditions": [
        {"kind": "expected_tail", "topic": "orders", "tail": 41},
        {"kind": "stream_new", "topic": "x"},
        {"kind": "cursor_equals", "name": "billing", "topic": "orders", "partition": 2, "frontier": 40},
        {"kind": "id", "topic": "orders", "message_id": "o6", "present": True},
        {"kind": "epoch_equals", "topic": "orders", "producer": "http:shop", "epoch": 1},
    ],
    "cursors": [{"name": "billing", "topic": "orders", "frontier": 42, "metadata": "m", "pinned": True}],
}  # fmt: skip

PUBLISH: dict[str, Any] = {
    "application": "app", "fence": 3, "query": "q", "batch": 9,
    "stages": [{"stage_id": 5, "topic": "t", "partition": 1, "count": 2}],
    "source_start": "AA==", "source_end": "AQ==", "accept_new_query": True,
    "cursors": [{"name": "n", "topic": "t", "frontier": 1}],
}  # fmt: skip


def test_commit_is_what_its_body_says() -> None:
    command = commit_of(msgspec.json.encode(COMMIT), NOW_MS)
    assert command.commit_id == "order-7"
    assert command.claim == ProducerClaim("commit:shop", 1, 12, 12, int(SequenceMode.REQUESTS))
    assert [(append.topic, append.partition, append.count, append.message_id) for append in command.appends] == [
        ("orders", 0, 4, b"o7"),
        ("stock", 0, 1, b""),
    ]
    assert codec.decode(command.appends[0].batch) == [
        (0, NOW_MS, None, b'{"order":7}', ()),
        (1, NOW_MS, None, b"text", ()),
        (2, 5, b"k", b"\x00\x01", (("h", b"v"), ("b", b"\x00"), ("n", None))),
        (3, NOW_MS, b"\xff", b"", ()),
    ]
    assert command.conditions == [
        c.ExpectTail("orders", 0, 41),
        c.ExpectNew("x"),
        c.ExpectCursor("billing", "orders", 2, 40),
        c.ExpectId("orders", 0, b"o6", True),
        c.ExpectEpoch("orders", 0, "http:shop", 1),
    ]
    assert command.cursors == [c.CursorMove("billing", "orders", 0, 42, "m", True)]
    assert command_refused(command) is None


LEAST = b'{"appends": [{"topic": "t", "records": [{"json": 1}]}]}'


@pytest.mark.parametrize("header", OF_ONE_APPEND)
def test_commit_with_a_claim_or_a_condition_in_a_header_is_400(header: bytes) -> None:
    """It would be lost: a retry of the commit would be written again."""
    assert status_of(routed(made("POST", "/v1/commit", LEAST, **{header.decode(): "1"}))) == 400


def test_idempotency_key_is_the_id_of_a_commit() -> None:
    def submitted(body: bytes) -> Action:
        return routed(made("POST", "/v1/commit", body, idempotency_key="k1"))

    for body in (LEAST, LEAST[:-1] + b', "commit_id": "k1"}'):
        action = submitted(body)
        assert isinstance(action, Submit)
        assert isinstance(action.command, c.Commit)
        assert action.command.commit_id == "k1"
    assert status_of(submitted(LEAST[:-1] + b', "commit_id": "k2"}')) == 400
    assert status_of(routed(made("POST", "/v1/commit", LEAST, idempotency_key=""))) == 400


def test_json_of_a_record_is_kept_byte_for_byte() -> None:
    body = b'{"appends":[{"topic":"t","records":[{"json": { "b" : 1.50,  "a":[ ] } },{"json":null},{"json":"x"}]}]}'
    command = commit_of(body, NOW_MS)
    assert codec.decode_values(command.appends[0].batch) == [b'{ "b" : 1.50,  "a":[ ] }', b"null", b'"x"']


def test_least_commit_is_one_append_or_one_cursor() -> None:
    assert commit_of(b'{"appends":[{"topic":"t","records":[{"value":"x"}]}]}', NOW_MS).claim is None
    assert commit_of(b'{"cursors":[{"name":"n","topic":"t","frontier":1}]}', NOW_MS).appends == []


def test_publish_is_what_its_body_says() -> None:
    command = publish_of(msgspec.json.encode(PUBLISH))
    assert command == c.Publish(
        [c.PublishItem(5, "t", 1, 2)], "app", 3, "q", 9, b"\x00", b"\x01", True, [c.CursorMove("n", "t", 0, 1)]
    )


# --- wrong, each in turn -------------------------------------------------------------------------------------------

Path = tuple[str | int, ...]


def members(value: Any, path: Path = ()) -> list[Path]:
    """Every member of a body, at any depth."""
    found: list[Path] = []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        found.append((*path, key))
        if key not in ("json", "headers"):  # whatever is in there is the client's own
            found += members(below, (*path, key))
    return found


def replaced(body: Any, path: Path, value: Any) -> Any:
    changed = copy.deepcopy(body)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def wrong_values(right: Any) -> list[Any]:
    """Values of other types. No member takes a float or a list of lists."""
    return (
        [1.5, [["x"]]]
        + ([] if isinstance(right, dict) else [{"no": 1}])
        + (["text"] if not isinstance(right, str) else [7])
    )


def value_at(body: Any, path: Path) -> Any:
    for key in path:
        body = body[key]
    return body


WRONG = [
    (path, value)
    for path in members(COMMIT)
    if path[-1] != "json"
    for value in wrong_values(value_at(COMMIT, path))
    # A key or a header may be text.
    if not (path[-1] == "key" and value == "text")
]


@pytest.mark.parametrize(("path", "value"), WRONG, ids=str)
def test_member_of_another_type_is_named(path: Path, value: Any) -> None:
    with pytest.raises(BodyInvalid) as caught:
        commit_of(msgspec.json.encode(replaced(COMMIT, path, value)), NOW_MS)
    names = [part for part in path if isinstance(part, str)]
    assert names[-1] in str(caught.value) or names[0] in str(caught.value), caught.value


@pytest.mark.parametrize(
    "path", [path for path in members(COMMIT) if isinstance(value_at(COMMIT, path), dict)], ids=str
)
def test_member_that_is_unknown_is_named(path: Path) -> None:
    if path[-1] in ("json", "headers"):
        return
    with pytest.raises(BodyInvalid, match="surprise"):
        commit_of(msgspec.json.encode(replaced(COMMIT, (*path, "surprise"), 1)), NOW_MS)


@pytest.mark.parametrize(
    ("path", "member"),
    [
        (("appends", 0, "topic"), "topic"),
        (("appends", 0, "records"), "records"),
        (("producer", "name"), "name"),
        (("producer", "epoch"), "epoch"),
        (("producer", "sequence"), "sequence"),
        (("conditions", 0, "kind"), "kind"),
        (("conditions", 0, "topic"), "topic"),
        (("conditions", 0, "tail"), "conditions[0]"),
        (("conditions", 2, "name"), "conditions[2]"),
        (("conditions", 2, "frontier"), "conditions[2]"),
        (("conditions", 3, "message_id"), "conditions[3]"),
        (("conditions", 3, "present"), "conditions[3]"),
        (("conditions", 4, "producer"), "conditions[4]"),
        (("conditions", 4, "epoch"), "conditions[4]"),
        (("cursors", 0, "name"), "name"),
        (("cursors", 0, "topic"), "topic"),
        (("cursors", 0, "frontier"), "frontier"),
    ],
    ids=str,
)
def test_member_that_is_missing_is_named(path: Path, member: str) -> None:
    body = copy.deepcopy(COMMIT)
    del value_at(body, path[:-1])[path[-1]]
    with pytest.raises(BodyInvalid) as caught:
        commit_of(msgspec.json.encode(body), NOW_MS)
    assert member in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("appends", 1, "records"), [], "appends[1].records"),
        (("appends", 0, "records", 1), {}, "appends[0].records[1]"),
        (("appends", 0, "records", 1), {"value": "a", "json": 1}, "appends[0].records[1]"),
        (("appends", 0, "records", 1), {"value": "a", "base64": ""}, "appends[0].records[1]"),
        (("appends", 0, "records", 2, "base64"), "!", "appends[0].records[2].base64"),
        (("appends", 0, "records", 2, "base64"), "AAE", "appends[0].records[2].base64"),
        (("appends", 0, "records", 2, "base64"), "ü", "appends[0].records[2].base64"),
        (("appends", 0, "records", 2, "timestamp_ms"), -1, "appends[0].records[2].timestamp_ms"),
        (("appends", 0, "records", 2, "timestamp_ms"), 2**62, "appends[0].records[2].timestamp_ms"),
        (("appends", 0, "records", 2, "timestamp_ms"), 10**40, "timestamp_ms"),
        (("appends", 0, "records", 3, "key"), {"base64": "?"}, "appends[0].records[3].key"),
        (("appends", 0, "records", 2, "headers"), {"h": {"base64": "?"}}, "appends[0].records[2].headers"),
        (("conditions", 1, "kind"), "weather", "conditions[1]"),
    ],
    ids=str,
)
def test_value_that_makes_no_sense_is_named_with_its_place(path: Path, value: Any, place: str) -> None:
    with pytest.raises(BodyInvalid) as caught:
        commit_of(msgspec.json.encode(replaced(COMMIT, path, value)), NOW_MS)
    assert place in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"1", b"{", b'{"appends":', b"\xff", b'{"commit_id":"\xff"}',
     b'{"appends":' + b"[" * 100_000, b"[" * 100_000],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/commit", "/v1/publish"])
def test_body_that_is_no_object_is_400(path: str, body: bytes) -> None:
    action = routed(made("POST", path, body))
    assert isinstance(action, Done)
    assert action.answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"body_invalid"' in action.answer


@pytest.mark.parametrize("text", [r"\ud800", r"\udc00x", r"\ud800\ud800", r"x\udfff"])
@pytest.mark.parametrize(
    "body",
    [
        '{"appends":[{"topic":"%s","records":[{"value":"x"}]}]}',
        '{"appends":[{"topic":"t","records":[{"value":"%s"}]}]}',
        '{"appends":[{"topic":"t","records":[{"value":"x","key":"%s"}]}]}',
        '{"appends":[{"topic":"t","records":[{"value":"x","headers":{"%s":"v"}}]}]}',
        '{"appends":[{"topic":"t","records":[{"value":"x","headers":{"h":"%s"}}]}]}',
        '{"appends":[{"topic":"t","message_id":"%s","records":[{"value":"x"}]}]}',
        '{"commit_id":"%s","appends":[{"topic":"t","records":[{"value":"x"}]}]}',
        '{"cursors":[{"name":"%s","topic":"t","frontier":1}]}',
        '{"cursors":[{"name":"n","topic":"t","frontier":1,"metadata":"%s"}]}',
        '{"cursors":[{"name":"n","topic":"t","frontier":1}],"producer":{"name":"%s","epoch":0,"sequence":0}}',
        '{"cursors":[],"conditions":[{"kind":"id","topic":"t","message_id":"%s","present":true}]}',
    ],
)  # fmt: skip
def test_half_a_surrogate_pair_is_refused_and_raises_nothing(body: str, text: str) -> None:
    action = routed(made("POST", "/v1/commit", (body % text).encode()))
    if isinstance(action, Submit):
        assert command_refused(action.command) is not None
    else:
        assert isinstance(action, Done)
        assert action.answer.startswith(b"HTTP/1.1 400 ")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*COMMIT, "topic", "kind"]), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


@given(st.sampled_from(members(COMMIT)), JUNK)
def test_whatever_stands_in_a_commit_it_is_submitted_or_400(path: Path, junk: Any) -> None:
    action = routed(made("POST", "/v1/commit", msgspec.json.encode(replaced(COMMIT, path, junk))))
    if isinstance(action, Submit):
        command_refused(action.command)
    else:
        assert isinstance(action, Done)
        assert action.answer.startswith(b"HTTP/1.1 400 ")


@given(st.sampled_from(members(PUBLISH)), JUNK)
def test_whatever_stands_in_a_publish_it_is_submitted_or_400(path: Path, junk: Any) -> None:
    action = routed(made("POST", "/v1/publish", msgspec.json.encode(replaced(PUBLISH, path, junk))))
    if isinstance(action, Submit):
        command_refused(action.command)
    else:
        assert isinstance(action, Done)
        assert action.answer.startswith(b"HTTP/1.1 400 ")
