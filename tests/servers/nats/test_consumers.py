"""Consumers over restarts, limits and removals, and many deliveries beside batches."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.servers.nats.client import RawClient, Received
from tests.servers.running import Running, running


def nats_port(server: Running) -> int:
    return server.addresses["nats"].port


def durable(client: RawClient, stream: str = "S", name: str = "D", **config: Any) -> Any:
    fields = {"durable_name": name, "ack_policy": "explicit", **config}
    answer = client.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": fields})
    assert "error" not in answer, answer
    return answer


def fetch(client: RawClient, batch: int, stream: str = "S", name: str = "D") -> list[Received]:
    """Messages until the batch is full or there are no more."""
    body = json.dumps({"batch": batch, "no_wait": True}).encode()
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", body, f"{client.inbox}.fetch")
    found: list[Received] = []
    while len(found) < batch:
        received = client.receive()
        if received.status:
            break
        found.append(received)
    return found


def deliveries(received: Received) -> int:
    return int(received.reply.split(".")[4])


def ack(client: RawClient, received: Received, body: bytes = b"") -> None:
    """With a confirmation: it is on disk when this returns."""
    assert client.request(received.reply, body).payload == b""


def test_place_and_delivery_counts_survive_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        client.stream("S")
        for number in range(5):
            client.request("S.a", b"%d" % number)
        durable(client, ack_wait=10**8)
        first = fetch(client, 4)
        ack(client, first[0])
        ack(client, first[2])
        info = client.api("CONSUMER.INFO.S.D")
        assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]) == (1, 2, 1)
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        info = client.api("CONSUMER.INFO.S.D")
        assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]) == (1, 2, 1)
        assert info["delivered"] == {"consumer_seq": 4, "stream_seq": 4}
        client.publish("$JS.API.CONSUMER.MSG.NEXT.S.D", b'{"batch":3,"expires":5000000000}', f"{client.inbox}.fetch")
        again = sorted((client.receive() for _ in range(3)), key=lambda each: each.payload)
        assert [each.payload for each in again] == [b"1", b"3", b"4"]
        assert [deliveries(each) for each in again] == [2, 2, 1]
        for each in again:
            ack(client, each)
        info = client.api("CONSUMER.INFO.S.D")
        assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]) == (5, 0, 0)


def test_ack_from_before_a_restart_counts(tmp_path: Path) -> None:
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        client.stream("S")
        client.request("S.a")
        durable(client)
        received = fetch(client, 1)[0]
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        ack(client, received)
        assert client.api("CONSUMER.INFO.S.D")["ack_floor"]["stream_seq"] == 1


def test_job_that_was_done_stays_done_and_its_id_a_duplicate(tmp_path: Path) -> None:
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        client.stream("S", retention="workqueue")
        client.request("S.a", b"job", Nats_Msg_Id="j1")
        durable(client)
        ack(client, fetch(client, 1)[0])
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 0
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 0
        assert client.request("S.a", b"job", Nats_Msg_Id="j1").json == {"stream": "S", "seq": 1, "duplicate": True}
        assert fetch(client, 1) == []


def test_id_confirmed_over_http_is_a_duplicate_over_nats_and_the_reverse() -> None:
    with running() as server, RawClient(nats_port(server)) as client:
        client.stream("S")
        octets = {"Content-Type": "application/octet-stream"}
        over_http = server.ask("POST", "/v1/stream/S", b"one", {**octets, "Stream-Message-Id": "m1"})
        assert over_http.status in (200, 201, 204)
        assert client.request("S.a", b"one", Nats_Msg_Id="m1").json == {"stream": "S", "seq": 1, "duplicate": True}
        assert client.request("S.a", b"two", Nats_Msg_Id="m2").json == {"stream": "S", "seq": 2}
        again = server.ask("POST", "/v1/stream/S", b"two", {**octets, "Stream-Message-Id": "m2"})
        assert again.headers["stream-duplicate"] == "true"
        raw = client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
        assert raw["subject"] == "S.$raw"


def test_topic_of_another_face_is_a_stream_with_its_keys_as_subjects() -> None:
    with running() as server, RawClient(nats_port(server)) as client:
        assert server.ask("PUT", "/v1/stream/plant", headers={"Content-Type": "text/plain"}).status == 201
        assert client.request("plant.line.1", b"hot").json == {"stream": "plant", "seq": 1}
        assert server.ask("POST", "/v1/stream/plant", b"cold", {"Content-Type": "text/plain"}).status in (200, 204)
        info = client.api("STREAM.INFO.plant", {"subjects_filter": ">"})
        assert info["config"]["subjects"] == ["plant.>"]
        assert info["state"]["subjects"] == {"plant.line.1": 1, "plant.$raw": 1}
        assert client.error(client.api("STREAM.CREATE.plant", {"name": "plant"})) == (400, 10058)
        durable(client, "plant")
        assert [each.payload for each in fetch(client, 5, "plant")] == [b"hot", b"cold"]


@pytest.mark.timeout(120)
def test_consumer_never_sees_part_of_a_batch() -> None:
    """20 batches of 1,000 beside a push consumer: the count of what follows proves that the whole batch is there."""
    size, batches = 1_000, 20
    with running() as server, RawClient(nats_port(server)) as reader, RawClient(nats_port(server)) as writer:
        reader.stream("S", allow_atomic=True)
        reader.send("SUB deliveries d")
        config = {"deliver_subject": "deliveries", "ack_policy": "none", "name": "P"}
        reader.api("CONSUMER.CREATE.S.P", {"stream_name": "S", "config": config})
        for batch in range(batches):
            for number in range(1, size):
                writer.publish("S.a", b"x", Nats_Batch_Id=f"b{batch}", Nats_Batch_Sequence=str(number))
            answer = writer.member("S.a", f"b{batch}", size, commit="1").json
            assert answer.get("count") == size, answer
        partial = 0
        for _ in range(size * batches):
            tokens = reader.receive().reply.split(".")
            sequence, pending = int(tokens[5]), int(tokens[8])
            partial += pending < (size - sequence % size) % size
        assert partial == 0


def test_bucket_watcher_sees_five_keys_of_a_batch_together() -> None:
    with running() as server, RawClient(nats_port(server)) as client:
        client.stream("KV_B", subjects=["$KV.B.>"], allow_atomic=True, max_msgs_per_subject=1, allow_rollup_hdrs=True)
        client.send("SUB watch w")
        config = {"deliver_subject": "watch", "ack_policy": "none", "name": "W", "filter_subject": "$KV.B.>"}
        client.api("CONSUMER.CREATE.KV_B.W", {"stream_name": "KV_B", "config": config})
        keys = [f"$KV.B.address.{name}" for name in ("street", "city", "code", "state", "country")]
        for number, key in enumerate(keys[:-1], start=1):
            client.publish(key, b"new", Nats_Batch_Id="move", Nats_Batch_Sequence=str(number))
        client.publish(
            keys[-1], b"new", f"{client.inbox}.0", Nats_Batch_Id="move", Nats_Batch_Sequence="5", Nats_Batch_Commit="1"
        )
        seen = [client.receive() for _ in range(6)]
        watched = [each for each in seen if each.sid == "w"]
        assert [each.subject for each in watched] == keys
        assert [each.reply.split(".")[-1] for each in watched] == ["4", "3", "2", "1", "0"]
