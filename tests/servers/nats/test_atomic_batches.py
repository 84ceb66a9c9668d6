"""Atomic batches on a server: every line of seed 000 that a client can see, and retries before and after a restart."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.nats.client import RawClient
from tests.servers.running import running

ADVISORIES = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>"


@pytest.fixture
def client() -> Iterator[RawClient]:
    with running() as server, RawClient(server.addresses["nats"].port) as one:
        one.stream("S", allow_atomic=True)
        yield one


def state(client: RawClient, name: str = "S") -> Any:
    return client.api(f"STREAM.INFO.{name}")["state"]


def test_batch_is_stored_contiguously_and_acknowledged_with_its_id_and_count(client: RawClient) -> None:
    client.request("S.before")
    assert client.batch(["S.a", "S.b", "S.c"], "one") == {"stream": "S", "seq": 4, "batch": "one", "count": 3}
    assert state(client)["messages"] == 4
    stored = client.api("STREAM.MSG.GET.S", {"seq": 4})["message"]
    assert stored["subject"] == "S.c"


def test_nothing_of_an_open_batch_is_seen(client: RawClient) -> None:
    client.member("S.a", "one", 1)
    client.member("S.a", "one", 2)
    assert state(client)["messages"] == 0


def test_end_of_batch_stores_one_less(client: RawClient) -> None:
    client.member("S.a", "one", 1)
    client.member("S.b", "one", 2)
    answer = client.member("S.c", "one", 3, commit="eob").json
    assert answer == {"stream": "S", "seq": 2, "batch": "one", "count": 2}
    assert state(client)["num_subjects"] == 2


@pytest.mark.parametrize(
    ("members", "number"),
    [
        ([("2", "")], 10176),
        ([("1", ""), ("3", "")], 10176),
        ([("1", "eob")], 10176),
        ([("x", "")], 10175),
        ([("1001", "")], 10199),
        ([("1", "maybe")], 10200),
        ([("1", ""), ("2", "0")], 10200),
    ],
)
def test_mistakes(client: RawClient, members: list[tuple[str, str]], number: int) -> None:
    for sequence, commit in members:
        more = {"Nats_Batch_Commit": commit} if commit else {}
        last = client.request("S.a", b"x", Nats_Batch_Id="one", Nats_Batch_Sequence=sequence, **more)
    assert client.error(last) == (400, number)
    assert state(client)["messages"] == 0


def test_id_is_counted_in_characters(client: RawClient) -> None:
    assert client.member("S.a", "ü" * 64, 1, commit="1").json["batch"] == "ü" * 64
    assert client.error(client.member("S.a", "ü" * 65, 1)) == (400, 10179)
    assert client.error(client.member("S.a", "", 1)) == (400, 10179)


def test_stream_without_batches(client: RawClient) -> None:
    client.stream("T")
    refused = client.member("T.a", "one", 1)
    assert client.error(refused) == (400, 10174)
    assert refused.json["error"]["description"] == "Batch publish not enabled on stream"


def test_turning_batches_off_drops_the_open_ones(client: RawClient) -> None:
    client.member("S.a", "one", 1)
    config = client.api("STREAM.INFO.S")["config"]
    assert config["metadata"]["_nats.req.level"] == "2"
    off = client.api("STREAM.UPDATE.S", {**config, "allow_atomic": False})
    assert "allow_atomic" not in off["config"]
    assert off["config"]["metadata"]["_nats.req.level"] == "0"
    client.api("STREAM.UPDATE.S", {**config, "allow_atomic": True})
    assert client.error(client.member("S.a", "one", 2, commit="1")) == (400, 10176)


def test_unsupported_headers(client: RawClient) -> None:
    client.member("S.a", "one", 1)
    refused = client.member("S.a", "one", 2, commit="1", Nats_Expected_Last_Msg_Id="m")
    assert client.error(refused) == (400, 10177)


@pytest.mark.parametrize("where", ["server", "stream"])
def test_message_ids_can_be_refused(where: str) -> None:
    faces = {"nats": {"batch_msg_id": "refuse"}} if where == "server" else {}
    metadata = {"oncelog.batch_msg_id": "refuse"} if where == "stream" else {}
    with running(faces=faces) as server, RawClient(server.addresses["nats"].port) as client:
        client.stream("S", allow_atomic=True, metadata=metadata)
        assert client.error(client.member("S.a", "one", 1, commit="1", Nats_Msg_Id="m")) == (400, 10177)


def test_expectations_compare_with_the_state_before_the_batch(client: RawClient) -> None:
    client.request("S.a")
    client.request("S.b")
    wrong = client.member("S.c", "one", 1, commit="1", Nats_Expected_Last_Sequence="1")
    assert client.error(wrong) == (400, 10071)
    assert wrong.json["error"]["description"] == "wrong last sequence: 2"
    assert client.member("S.c", "two", 1, commit="1", Nats_Expected_Last_Sequence="2").json["seq"] == 3
    client.member("S.d", "three", 1)
    assert client.error(client.member("S.d", "three", 2, commit="1", Nats_Expected_Last_Sequence="3")) == (400, 10164)
    client.member("S.a", "four", 1, Nats_Expected_Last_Subject_Sequence="1")
    assert client.member("S.b", "four", 2, commit="1", Nats_Expected_Last_Subject_Sequence="2").json["seq"] == 5
    client.member("S.e", "five", 1)
    late = client.member("S.e", "five", 2, commit="1", Nats_Expected_Last_Subject_Sequence="0")
    assert client.error(late) == (400, 10164)
    assert state(client)["messages"] == 5


def test_known_message_id_refuses_the_batch(client: RawClient) -> None:
    client.request("S.a", b"one", Nats_Msg_Id="m1")
    client.member("S.a", "one", 1, Nats_Msg_Id="m2")
    assert client.error(client.member("S.a", "one", 2, b"one", commit="1", Nats_Msg_Id="m1")) == (400, 10201)
    client.member("S.a", "two", 1, Nats_Msg_Id="m2")
    assert client.error(client.member("S.a", "two", 2, b"x", commit="1", Nats_Msg_Id="m2")) == (400, 10201)
    client.member("S.a", "three", 1, Nats_Msg_Id="m2")
    assert client.member("S.a", "three", 2, commit="1", Nats_Msg_Id="m3").json["count"] == 2
    assert state(client)["messages"] == 3


@pytest.mark.parametrize("ids", [False, True])
def test_retry_of_a_committed_batch_is_stored_once_before_and_after_a_restart(tmp_path: Path, ids: bool) -> None:
    def send(client: RawClient, only_last: bool) -> Any:
        for number in (1, 2, 3):
            more = {"Nats_Msg_Id": f"id{number}"} if ids else {}
            if number < 3 and not only_last:
                client.member("S.a", "one", number, b"%d" % number, **more)
            elif number == 3:
                return client.member("S.a", "one", number, b"3", commit="1", **more).json
        return None

    first = {"stream": "S", "seq": 3, "batch": "one", "count": 3}
    for restart in (False, True):
        with running(tmp_path) as server, RawClient(server.addresses["nats"].port) as client:
            if not restart:
                client.stream("S", allow_atomic=True)
                assert send(client, False) == first
            assert send(client, False) == {**first, "duplicate": True}
            assert send(client, True) == {**first, "duplicate": True}
            assert state(client)["messages"] == 3
    with running(tmp_path) as server, RawClient(server.addresses["nats"].port) as client:
        client.member("S.a", "one", 1, b"other")
        assert client.member("S.a", "one", 2, b"content", commit="1").json == {
            "stream": "S",
            "seq": 5,
            "batch": "one",
            "count": 2,
        }
        assert client.error(client.member("S.a", "one", 3, b"not 3", commit="1")) == (400, 10176)


def test_other_content_under_the_same_id_is_a_new_batch(client: RawClient) -> None:
    assert client.batch(["S.a", "S.b"], "one")["seq"] == 2
    assert client.batch(["S.c", "S.d"], "one") == {"stream": "S", "seq": 4, "batch": "one", "count": 2}
    assert client.batch(["S.c", "S.d"], "one") == {
        "stream": "S",
        "seq": 4,
        "duplicate": True,
        "batch": "one",
        "count": 2,
    }


def test_advisories_name_the_reason(client: RawClient) -> None:
    client.send(f"SUB {ADVISORIES} adv")
    client.member("S.a", "one", 1)
    client.publish("S.a", b"", Nats_Batch_Id="one", Nats_Batch_Sequence="5")
    advisory = client.receive()
    assert advisory.subject == "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"
    fields = advisory.json
    assert fields["type"] == "io.nats.jetstream.advisory.v1.batch_abandoned"
    assert (fields["stream"], fields["batch"], fields["reason"]) == ("S", "one", "incomplete")
    assert fields["id"]
    assert fields["timestamp"]


def test_silent_batch_ends_without_a_reply_but_with_an_advisory() -> None:
    with (
        running(faces={"nats": {"batch_timeout_ms": 50}}) as server,
        RawClient(server.addresses["nats"].port) as client,
    ):
        client.stream("S", allow_atomic=True)
        client.send(f"SUB {ADVISORIES} adv")
        client.member("S.a", "one", 1)
        assert client.receive().json["reason"] == "timeout"
        assert client.error(client.member("S.a", "one", 2, commit="1")) == (400, 10176)


def test_clean_stop_abandons_open_batches_with_an_advisory() -> None:
    with running() as server, RawClient(server.addresses["nats"].port) as client:
        client.stream("S", allow_atomic=True)
        client.send(f"SUB {ADVISORIES} adv")
        client.member("S.a", "one", 1)
        server.begin_stop()
        assert client.receive().json["reason"] == "incomplete"
        assert json.loads(client.line().removeprefix("INFO "))["ldm"] is True


def test_limits_are_settings() -> None:
    limits = {"batches_per_stream": 1, "batches_max": 2, "batch_messages_max": 2}
    with running(faces={"nats": limits}) as server, RawClient(server.addresses["nats"].port) as client:
        for name in "STU":
            client.stream(name, allow_atomic=True)
        client.member("S.a", "one", 1)
        assert client.error(client.member("S.a", "two", 1)) == (429, 10210)
        client.member("T.a", "one", 1)
        assert client.error(client.member("U.a", "one", 1)) == (429, 10210)
        client.member("S.a", "one", 2)
        refused = client.member("S.a", "one", 3, commit="1")
        assert client.error(refused) == (400, 10199)


def test_required_level(client: RawClient) -> None:
    assert client.error(client.member("S.a", "one", 1, Nats_Required_Api_Level="4")) == (412, 10185)
    client.member("S.a", "one", 1, Nats_Required_Api_Level="3")
    assert client.member("S.b", "one", 2, commit="eob", Nats_Required_Api_Level="3").json["count"] == 1
    stored = client.request("$JS.API.STREAM.MSG.GET.S", b'{"seq":1}').json["message"]
    assert "Required" not in str(stored)


def test_mirrors_and_async_streams_cannot_have_batches(client: RawClient) -> None:
    mirror = {"name": "M", "mirror": {"name": "S"}, "allow_atomic": True}
    assert client.error(client.api("STREAM.CREATE.M", mirror)) == (400, 10198)
    lazy = {"name": "L", "subjects": ["l"], "persist_mode": "async", "allow_atomic": True}
    assert client.error(client.api("STREAM.CREATE.L", lazy)) == (500, 10052)


def test_members_without_a_reply_are_taken_silently(client: RawClient) -> None:
    for number in (1, 2):
        client.publish("S.a", b"x", Nats_Batch_Id="one", Nats_Batch_Sequence=str(number))
    assert client.member("S.a", "one", 3, commit="1").json["count"] == 3
