"""What a server may answer instead of what was asked for: each ends a verb with one line and the code for it."""

from collections.abc import Callable

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


@pytest.mark.parametrize(
    "arguments", [["streams"], ["append", "t", "v"], ["append", "t"], ["receipts", "t", "i"], ["read", "t"]]
)
def test_damage_that_the_server_tells_ends_every_verb_with_4(arguments: list[str]) -> None:
    with answering(damaged_log) as url:
        result = run_here(*arguments, url=url)
    assert result.returncode == exits.DAMAGED
    assert result.stderr.decode().startswith(f"oncelog: {DAMAGED['detail']} (stop the server)")


@pytest.mark.parametrize("lost", ["/v1/stream/t", "/v1/producers", "/v1/cursors"])
def test_somebody_elses_404_makes_no_log_sound(lost: str) -> None:
    """A proxy that does not pass everything on: what could not be asked was not checked."""

    def proxied(path: str) -> tuple[int, str, bytes]:
        return (404, "text/plain", b"no route") if path == lost else damaged_log(path)

    with answering(proxied) as url:
        result = run_here("verify", url)
    assert result.returncode == exits.REFUSED
    assert result.stderr.decode() == f"oncelog: {url} answered 404: no route\n"


def test_attempt_before_somebody_elses_404_may_be_stored() -> None:
    """1. A proxy passes the batch on and gives up waiting: 504. 2. It loses its route: 404, no word of ours."""
    statuses = iter([504])

    def proxied(path: str) -> tuple[int, str, bytes]:
        match path:
            case "/v1/topics/t":
                return 200, JSON, TOPIC
            case "/v1/producers/t/p":
                return 404, PROBLEM, b'{"code": "not_found", "detail": "no such producer", "retryable": false}'
        return next(statuses, 404), "text/plain", b"no route"

    with answering(proxied) as url:
        result = run_here("append", "t", "--producer", "p", url=url, given=b"a\n")
    assert result.returncode == exits.REFUSED
    assert result.stderr.decode().endswith("answered 404: no route; nothing is confirmed\n")


def other(*bodies: bytes) -> Callable[[str], tuple[int, str, bytes]]:
    """A server of JSON that is none of ours: it answers these, one after the other, and the last one for ever."""
    left = list(bodies)
    return lambda _path: (200, JSON, left.pop(0) if len(left) > 1 else left[0])


TOPIC = b'{"name": "t", "partitions": 1, "content_type": "text/plain"}'


@pytest.mark.parametrize("body", [b"{}", b"[]", b"7", b'{"next": null}', b'{"next": 7}'])
@pytest.mark.parametrize(
    "arguments",
    [
        ["verify"],
        ["streams"],
        ["streams", "--json"],
        ["cursors"],
        ["producers", "t"],
        ["producers", "t", "--prefix", "p"],
        ["receipts", "t", "i"],
        ["receipts", "t", "i", "--json"],
        ["read", "t"],
        ["read", "t", "--follow"],
        ["read", "t", "--from", "7"],
        ["append", "t", "v"],
        ["append", "t", "v", "--create"],
        ["append", "t"],
        ["append", "t", "--producer", "p"],
    ],
)
def test_other_server_is_told_from_ours(arguments: list[str], body: bytes) -> None:
    with answering(other(body)) as url:
        result = run_here(*arguments, *([url] if arguments == ["verify"] else []), url=url, given=b"a\n")
    assert (result.returncode, result.stdout) == (exits.UNREACHABLE, b"")
    assert result.stderr.decode().startswith(f"oncelog: is {url} an oncelog server? ")
    assert result.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("arguments", "bodies"),
    [
        (["streams"], [b'{"streams": [{}], "next": null}']),
        (["streams", "--json"], [b'{"streams": [7], "next": null}']),
        (["cursors"], [b'{"cursors": {}, "next": null}']),
        (["append", "t", "--producer", "p"], [TOPIC, b"{}"]),
        (["append", "t", "--producer", "p"], [TOPIC, b'{"epoch": 0, "last_sequence": -1}', b"{}"]),
        (["verify"], [b'{"version": "1", "durability": "none"}', b"{}"]),
        (["verify"], [b'{"version": "1", "durability": "none"}', b'{"entry":1,"time_ms":1,"streams":[]}', b"{}"]),
    ],
)
def test_later_answer_of_another_server_is_told_too(arguments: list[str], bodies: list[bytes]) -> None:
    with answering(other(*bodies)) as url:
        result = run_here(*arguments, *([url] if arguments == ["verify"] else []), url=url, given=b"a\n")
    assert (result.returncode, result.stdout) == (exits.UNREACHABLE, b"")
    assert result.stderr.decode().startswith(f"oncelog: is {url} an oncelog server? ")


def test_listing_as_json_keeps_members_that_we_do_not_know() -> None:
    row = {"topic": "t", "partition": 0, "floor": 0, "stable": 0, "tail": 0, "closed": False, "new": [1]}
    with answering(other(msgspec.json.encode({"streams": [row], "next": None}))) as url:
        assert json_lines(run_here("streams", "--json", url=url).stdout.decode()) == [row]
        assert b"t " in run_here("streams", url=url).stdout


PAGE = b"<!DOCTYPE html>\n<html>\n<body>\n<h1>Not here</h1>\n</body>\n</html>\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["streams"],
        ["cursors"],
        ["producers", "t"],
        ["receipts", "t", "i"],
        ["read", "t"],
        ["read", "t", "--from", "end"],
        ["verify"],
        ["append", "t", "v"],
        ["append", "t"],
        ["append", "t", "--producer", "p"],
    ],
)
@pytest.mark.parametrize(
    ("status", "kind", "body", "told"),
    [
        (404, "text/html", PAGE, "{url} answered 404: a page, such as no server of this protocol sends"),
        (403, "text/plain", b"not\nyou", "{url} answered 403: not you"),
        (404, "text/plain", b"", "is {url} an oncelog server? it answered 404 and said no more"),
    ],
)
def test_no_of_another_server_is_told_in_one_line_as_its_own(
    arguments: list[str], status: int, kind: str, body: bytes, told: str
) -> None:
    """Who knows neither streams nor ids does not say that one is missing."""
    with answering(lambda _path: (status, kind, body)) as url:
        result = run_here(*arguments, *([url] if arguments == ["verify"] else []), url=url, given=b"a\n")
    assert (result.returncode, result.stdout) == (exits.REFUSED, b"")
    assert result.stderr.decode().startswith(f"oncelog: {told.format(url=url)}")
    assert result.stderr.count(b"\n") == 1


@pytest.mark.parametrize("arguments", [["streams"], ["append", "t", "v"], ["read", "t"], ["verify"]])
def test_https_to_a_server_without_tls_is_told_what_to_say_instead(arguments: list[str]) -> None:
    with answering(lambda _path: (200, JSON, b"{}")) as plain:
        url = plain.replace("http:", "https:")
        result = run_here(*arguments, *([url] if arguments == ["verify"] else []), url=url)
    assert result.returncode == exits.UNREACHABLE
    said = f"oncelog: cannot reach {url}: what answers there speaks no TLS (is it {plain}?)\n"
    assert result.stderr.decode() == said
