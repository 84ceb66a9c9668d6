"""Streams that remove by themselves: age, times to live, purges; and their configuration, over restarts."""

from pathlib import Path
from typing import Any

from tests.servers.nats.client import RawClient
from tests.servers.running import Running, running


def nats_port(server: Running) -> int:
    return server.addresses["nats"].port


def count(client: RawClient, name: str = "S") -> int:
    state: dict[str, Any] = client.api(f"STREAM.INFO.{name}")["state"]
    return int(state["messages"])


def test_age_and_time_to_live_remove_messages() -> None:
    with running() as server, RawClient(nats_port(server)) as client:
        client.stream("S", max_age=200_000_000)
        client.stream("T", allow_msg_ttl=True)
        client.request("S.a")
        assert "seq" in client.request("T.a", b"short", Nats_TTL="1s").json
        assert "seq" in client.request("T.b", b"long", Nats_TTL="never").json
        assert client.error(client.request("T.c", b"", Nats_TTL="soon")) == (400, 10165)
        while count(client) or count(client, "T") > 1:
            client.api("INFO")
        assert client.api("STREAM.MSG.GET.T", {"last_by_subj": "T.b"})["message"]["seq"] == 2


def test_what_a_limit_removed_stays_removed_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        client.stream("S", max_msgs_per_subject=2, allow_rollup_hdrs=True)
        for number in range(6):
            client.request("S.a", b"%d" % number)
        client.request("S.b", b"x")
        before = client.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        state = client.api("STREAM.INFO.S", {"deleted_details": True})["state"]
        assert {**state, "last_ts": "", "first_ts": ""} == {**before, "last_ts": "", "first_ts": ""}
        assert state["messages"] == 3
        assert client.api("STREAM.PURGE.S")["purged"] == 3
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        assert count(client) == 0
        assert client.request("S.a").json["seq"] == 8


def test_configuration_survives_a_restart_word_for_word(tmp_path: Path) -> None:
    fields = {"description": "d", "max_msgs": 7, "discard": "new", "metadata": {"team": "a"}, "storage": "memory"}
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        config = client.stream("S", duplicate_window=10**9, **fields)["config"]
    with running(tmp_path) as server, RawClient(nats_port(server)) as client:
        assert client.api("STREAM.INFO.S")["config"] == config
        assert "error" not in client.api("STREAM.CREATE.S", config)


def test_stream_deleted_over_http_is_gone_over_nats() -> None:
    with running() as server, RawClient(nats_port(server)) as client:
        client.stream("S")
        client.request("S.a")
        assert server.ask("DELETE", "/v1/stream/S").status == 204
        assert client.error(client.api("STREAM.INFO.S")) == (404, 10059)
        assert client.request("S.a").status == "503"
        client.stream("S")
        assert client.request("S.a").json["seq"] == 1


def test_message_ids_are_remembered_exactly_as_long_as_the_stream_says() -> None:
    with running() as server, RawClient(nats_port(server)) as client:
        client.stream("S", duplicate_window=100_000_000)
        client.stream("T")
        client.request("S.a", b"x", Nats_Msg_Id="m")
        client.request("T.a", b"x", Nats_Msg_Id="m")
        while client.request("S.a", b"x", Nats_Msg_Id="m").json.get("duplicate"):
            client.api("INFO")
        client.api("STREAM.PURGE.T")
        assert client.request("T.a", b"x", Nats_Msg_Id="m").json == {"stream": "T", "seq": 1, "duplicate": True}


def test_same_id_and_other_content_can_be_refused() -> None:
    with running() as server, RawClient(nats_port(server)) as client:
        client.stream("S", metadata={"oncelog.on_conflict": "refuse"})
        client.request("S.a", b"one", Nats_Msg_Id="m")
        assert client.request("S.a", b"one", Nats_Msg_Id="m").json["duplicate"] is True
        refused = client.request("S.a", b"two", Nats_Msg_Id="m")
        assert client.error(refused) == (503, 10077)


def test_guarded_writes_of_many_clients_are_each_decided_once() -> None:
    """Compare and set on one subject: of all that expect the same sequence, one succeeds."""
    with running() as server:
        clients = [RawClient(nats_port(server)) for _ in range(5)]
        clients[0].stream("S")
        last = 0
        for _ in range(20):
            for client in clients:
                header = f"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: {last}\r\n\r\n"
                client.raw(f"HPUB S.a {client.inbox}.0 {len(header)} {len(header) + 1}\r\n{header}x\r\n".encode())
            answers = [client.receive().json for client in clients]
            won = [answer["seq"] for answer in answers if "error" not in answer]
            assert len(won) == 1
            assert {answer["error"]["err_code"] for answer in answers if "error" in answer} == {10071}
            last = won[0]
        for client in clients:
            client.close()


def test_long_subject_is_refused_and_not_stored_under_another() -> None:
    with running() as server, RawClient(nats_port(server)) as client:
        client.stream("S")
        refused = client.request(f"S.{'x' * 500}")
        assert client.error(refused) == (503, 10077)
        assert count(client) == 0
