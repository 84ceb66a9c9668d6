"""`oncelog forward` and what belongs to it, as a user runs them against two servers."""

import contextlib
import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.running import PROGRAM, done, json_lines, run, serving
from tests.conformance.bsfg.boundary import Boundary

PATIENCE_S = 60


@pytest.fixture(scope="module")
def zones() -> Iterator[tuple[Boundary, Boundary]]:
    with contextlib.ExitStack() as stack:
        plant, office = (
            stack.enter_context(serving("--in-memory", "--any-port", "--zone", zone)) for zone in ("plant", "office")
        )
        yield Boundary(plant.url), Boundary(office.url)


@contextlib.contextmanager
def forwarding(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([PROGRAM, "forward", *arguments], stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until_forwarded(source: Boundary, sequence: int, consumer: str = "forward:office") -> None:
    """Ask until the source says that all up to the sequence are confirmed."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        _, _, body = source.request("GET", "/bsfg/status")
        if any(
            row["consumer_name"] == consumer and row["frontier"] >= sequence for row in json.loads(body)["consumers"]
        ):
            return
    raise AssertionError(f"{sequence} was not confirmed within {PATIENCE_S} s")


@pytest.fixture
def unused_tcp_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def facts(zone: Boundary, count: int, **changes: Any) -> int:
    return [zone.append(to_zone="office", **changes) for _ in range(count)][-1]


def test_facts_are_carried_and_verified_and_the_forwarder_stops_when_it_is_asked_to(
    zones: tuple[Boundary, Boundary],
) -> None:
    plant, office = zones
    last = facts(plant, 20)
    with forwarding("--from", plant.url, "--to", office.url) as forwarder:
        until_forwarded(plant, last)
        verdict = json_lines(done("verify", plant.url, "--against", office.url, "--json", url=plant.url))[0]
        forwarder.send_signal(signal.SIGTERM)
        assert forwarder.wait(PATIENCE_S) == 0
    assert (verdict["verdict"], verdict["confirmed"]) == ("sound", last)
    assert (verdict["source_zone"], verdict["target_zone"]) == ("plant", "office")


def test_a_gate_is_closed_and_opened(zones: tuple[Boundary, Boundary]) -> None:
    plant, office = zones
    facts(plant, 1)
    arguments = ("--from", plant.url, "--consumer", "forward:office")
    assert "closed" in done("forward", "gate", "close", *arguments, url="")
    with forwarding("--from", plant.url, "--to", office.url):
        last = facts(plant, 3)
        status = json_lines(done("forward", "status", "--from", plant.url, "--json", url=""))[0]["source"]
        (row,) = [row for row in status["consumers"] if row["stream"] == "facts.operational"]
        assert (row["gate"], row["unconfirmed"] >= 3) == ("closed", True)
        assert "open" in done("forward", "gate", "open", *arguments, url="")
        until_forwarded(plant, last)


def test_a_loss_in_the_target_is_damage(zones: tuple[Boundary, Boundary]) -> None:
    plant, office = zones
    missing = plant.append(to_zone="office")
    plant.confirm("forward:office", missing)
    result = run("verify", plant.url, "--against", office.url, url="")
    assert result.returncode == 4
    assert f"facts.operational {missing}".encode() in result.stdout


def test_metrics_tell_what_was_carried(zones: tuple[Boundary, Boundary], tmp_path: Any, unused_tcp_port: int) -> None:
    plant, office = zones
    file = tmp_path / "routes.toml"
    file.write_text(f'[[route]]\nfrom = "{plant.url}"\nto = "{office.url}"\nconsumer = "m"\n')
    last = facts(plant, 2)
    with forwarding("--config", str(file), "--metrics", f"127.0.0.1:{unused_tcp_port}"):
        until_forwarded(plant, last, "m")
        with urllib.request.urlopen(f"http://127.0.0.1:{unused_tcp_port}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
    frontier = f'oncelog_forward_frontier{{source="plant",stream="facts.operational",target="office"}} {float(last)}'
    assert frontier in text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--from", "http://127.0.0.1:1"), 2, "--to URL"),
        (("status", "--from", "http://127.0.0.1:1"), 3, "cannot reach"),
        (("--config", "/nonexistent.toml"), 2, "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_code(arguments: tuple[str, ...], code: int, says: str) -> None:
    result = run("forward", *arguments, url="")
    assert result.returncode == code, result.stderr
    assert says in result.stderr.decode()


def test_two_servers_of_one_zone_are_refused(zones: tuple[Boundary, Boundary]) -> None:
    plant, _ = zones
    result = run("forward", "--from", plant.url, "--to", plant.url, url="")
    assert result.returncode == 2
    assert "both zone 'plant'" in result.stderr.decode()
