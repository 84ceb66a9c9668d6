"""Peers: who may append, fetch and confirm, by token; and what is recorded of refusals."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import run, serving
from tests.conformance.bsfg.boundary import Boundary, Refused

CONFIG = """
in_memory = true
zone = "office"
[bsfg]
audit_subjects = ["audit:"]
[[peer]]
name = "plant"
token_file = "{folder}/plant"
append_subjects = ["pump:>", "valve:*"]
fetch_streams = ["facts.operational"]
export = ["order:>"]
[[peer]]
name = "depot"
token_file = "{folder}/depot"
start = "next"
"""

Caller = Callable[[str, str], Boundary]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    folder = tmp_path_factory.mktemp("peers")
    for name in ("plant", "depot"):
        (folder / name).write_text(f"token-of-{name}\n")
    config = folder / "oncelog.toml"
    config.write_text(CONFIG.format(folder=folder))
    with serving("--config", str(config), "--any-port") as server:

        def calling(zone: str, token: str = "") -> Boundary:
            return Boundary(server.url, zone, token)

        yield calling


def refused(node: Boundary, **changes: str) -> str:
    fact = node.fact(**changes)
    with pytest.raises(Refused) as caught:
        node.call("AppendFact", fact)
    with pytest.raises(Refused, match="not_found"):
        office_itself(node).call("GetReceipt", {"message_id": fact["envelope"]["message_id"]})
    return caught.value.code


def office_itself(node: Boundary) -> Boundary:
    return Boundary(node.url, "office")


def test_a_peer_appends_facts_of_its_own_and_of_its_subjects(office: Caller) -> None:
    plant = office("plant", "token-of-plant")
    assert plant.append(subject="pump:plant/1") > 0
    assert plant.append(subject="valve:7") > 0
    assert refused(plant, subject="valve:plant/7") == "permission_denied"
    assert refused(plant, subject="order:1") == "permission_denied"


@pytest.mark.parametrize(
    ("zone", "token", "code"),
    [
        ("depot", "token-of-plant", "permission_denied"),
        ("office", "token-of-plant", "permission_denied"),
        ("plant", "", "permission_denied"),
        ("stranger", "", "permission_denied"),
        ("plant", "token-of-nobody", "unauthenticated"),
        ("plant", "token-of-plan", "unauthenticated"),
    ],
)
def test_no_zone_speaks_for_another(office: Caller, zone: str, token: str, code: str) -> None:
    assert refused(office(zone, token), subject="pump:1") == code


def test_a_peer_gets_what_is_exported_and_steps_over_the_rest(office: Caller) -> None:
    own, plant = office("office", ""), office("plant", "token-of-plant")
    own.append(subject="secret:1", to_zone="plant")
    wanted = own.append(subject="order:2", to_zone="plant")
    own.append(subject="secret:3", to_zone="plant")
    page = plant.fetch("forward:plant")
    assert [fact["fact"]["subject"] for fact in page] == ["order:2"]
    assert plant.confirm("forward:plant", wanted) == wanted + 1, "what it does not get is as if it was not there"


def test_a_consumer_may_begin_with_what_comes_next(office: Caller) -> None:
    own, depot = office("office", ""), office("depot", "token-of-depot")
    own.append(subject="order:4")
    assert depot.fetch("forward:depot") == []
    later = own.append(subject="order:5")
    assert [fact["sequence"] for fact in depot.fetch("forward:depot")] == [later]


@pytest.mark.parametrize(
    ("consumer", "stream"), [("forward:depot", "facts.operational"), ("forward:plant", "facts.audit")]
)
def test_consumers_of_others_and_other_streams_are_refused(office: Caller, consumer: str, stream: str) -> None:
    plant = office("plant", "token-of-plant")
    for method in ("FetchFacts", "ConfirmReceipt"):
        message = {"consumer_name": consumer, "stream": stream}
        with pytest.raises(Refused) as caught:
            plant.call(method, message | ({"sequence": 1} if method == "ConfirmReceipt" else {}))
        assert caught.value.code == "permission_denied"


def test_a_subject_goes_to_the_stream_of_its_prefix(office: Caller) -> None:
    answer = office("office", "").call("AppendFact", office("office", "").fact(subject="audit:login/7"))
    assert answer["stream"] == "facts.audit"


def test_refusals_are_recorded(office: Caller) -> None:
    plant = office("plant", "token-of-plant")
    refused(plant, subject="order:9")
    _, _, body = plant.request("GET", "/v1/stream/bsfg.refusals")
    last = [record for record in json.loads(body) if "order:9" in record["message"]]
    assert [(record["caller"], record["method"], record["code"]) for record in last] == [
        ("plant", "AppendFact", "permission_denied")
    ]


def test_a_server_whose_token_file_is_missing_does_not_start(tmp_path: Path) -> None:
    config = tmp_path / "oncelog.toml"
    config.write_text(f'in_memory = true\n[[peer]]\nname = "plant"\ntoken_file = "{tmp_path}/none"\n')
    result = run("serve", "--config", str(config), "--any-port")
    assert result.returncode == 1
    assert b"the token of peer plant cannot be read" in result.stderr
