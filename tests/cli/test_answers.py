"""What a server may answer instead of what was asked for: each ends a verb with one line and the code for it."""

import msgspec
import pytest

from oncelog.cli import exits
from tests.cli.running import answering, json_lines, run_here

JSON = "application/json"
PROBLEM = "application/problem+json"

DAMAGED = {
    "code": "damaged",
    "detail": "a checksum differs, in segment-1 at byte 512",
    "hint": "stop the server",
    "retryable": False,
}


def damaged_log(path: str) -> tuple[int, str, bytes]:
    """A log of one stream `t`, whose records cannot be read."""
    row = {"topic": "t", "partition": 0, "floor": 3, "stable": 5, "tail": 5, "closed": False}
    found = {
        "/health": {"status": "ok", "version": "1", "durability": "fdatasync"},
        "/v1/cut": {"entry": 9, "time_ms": 100, "streams": [row]},
        "/v1/producers": {"producers": [], "next": None},
        "/v1/cursors": {"cursors": [], "next": None},
    }
    if path in found:
        return 200, JSON, msgspec.json.encode(found[path])
    return 500, PROBLEM, msgspec.json.encode(DAMAGED)


def test_damage_that_the_server_tells_is_in_the_report_of_verify() -> None:
    with answering(damaged_log) as url:
        said = run_here("verify", url)
        told = run_here("verify", url, "--json")
    what = f"the server refuses a read at 3 as damaged: {DAMAGED['detail']}"
    assert (said.returncode, said.stderr) == (exits.DAMAGED, b"")
    assert f"damage: t, partition 0: {what}" in said.stdout.decode()
    assert told.returncode == exits.DAMAGED
    (report,) = json_lines(told.stdout.decode())
    assert report["damages"] == [{"what": what, "topic": "t", "partition": 0, "offset": 3}]
    assert report["streams"] == 1


@pytest.mark.parametrize("arguments", [["streams"], ["append", "t", "v"], ["append", "t"], ["receipts", "t", "i"]])
def test_damage_that_the_server_tells_ends_every_verb_with_4(arguments: list[str]) -> None:
    with answering(damaged_log) as url:
        result = run_here(*arguments, url=url)
    assert result.returncode == exits.DAMAGED
    assert result.stderr.decode().startswith(f"oncelog: {DAMAGED['detail']} (stop the server)")
