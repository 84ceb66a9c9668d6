"""The verbs against a real server: what they print, what they store, and the code they end with."""

import errno
import http.server
import io
import os
import signal
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from typer.testing import CliRunner

from oncelog import limits
from oncelog.cli import exits
from oncelog.cli.append import PIPE_NOTE
from oncelog.cli.lines import lines_of
from oncelog.cli.main import app
from oncelog.client import Client
from oncelog.client.options import DialectName
from tests.cli.running import (
    PROGRAM,
    Server,
    begun,
    done,
    done_here,
    environment,
    json_lines,
    on_terminal,
    run,
    run_here,
    serving,
    shown,
    standing,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--in-memory", "--http", "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.fixture
def topic() -> str:
    """A stream of its own for every test."""
    return f"t-{uuid.uuid4().hex[:12]}"


def refused(*arguments: str, url: str, given: bytes = b"", code: int = exits.REFUSED) -> str:
    """The one line that says why."""
    return line_of(run(*arguments, url=url, given=given), code)


def refused_here(*arguments: str, url: str, given: bytes = b"") -> str:
    """The same without a process of its own."""
    return line_of(run_here(*arguments, url=url, given=given), exits.REFUSED)


def line_of(result: subprocess.CompletedProcess[bytes], code: int) -> str:
    message = result.stderr.decode().removeprefix(f"{PIPE_NOTE}\n")
    assert result.returncode == code, message
    assert message.startswith("oncelog: ")
    assert message.count("\n") == 1
    return message


# --- append ----------------------------------------------------------------------------------------------------


def test_value_is_appended_and_its_offset_printed(url: str, topic: str) -> None:
    assert done("append", topic, "one", "--create", url=url) == "0\n"
    assert done("append", topic, "two", "--create", url=url) == "1\n"
    assert done("append", topic, "", url=url) == "2\n"
    assert done("read", topic, url=url) == "one\ntwo\n\n"


def test_same_id_is_stored_once_and_other_content_is_refused(url: str, topic: str) -> None:
    assert done("append", topic, "v", "--id", "a", "--create", url=url) == "0\n"
    again = run("append", topic, "v", "--id", "a", url=url)
    assert (again.returncode, again.stdout) == (exits.DONE, b"0\n")
    assert b"stored before" in again.stderr
    refused("append", topic, "other", "--id", "a", url=url)
    assert done("read", topic, url=url) == "v\n"


def test_every_line_of_stdin_is_a_record(url: str, topic: str) -> None:
    said = done("append", topic, "--create", url=url, given=b"a\n\n b\xff\r\nlast")
    assert said == "4 lines stored at offsets 0 to 3\n"
    assert run("read", topic, url=url).stdout == b"a\n\n b\xff\r\nlast\n"


def test_empty_stdin_stores_nothing(url: str, topic: str) -> None:
    assert done("append", topic, "--create", url=url) == "0 lines stored\n"


def test_key_stands_on_every_record(url: str, topic: str) -> None:
    done("append", topic, "--create", "--key", "k", url=url, given=b"a\nb\n")
    assert [record["key"] for record in json_lines(done("read", topic, "--json", url=url))] == ["k", "k"]


def test_summary_as_json(url: str, topic: str) -> None:
    said = json_lines(done("append", topic, "--create", "--json", url=url, given=b"a\nb\n"))
    assert said == [
        {"topic": topic, "partition": 0, "records": 2, "duplicates": 0, "skipped": 0, "first": 0, "next": 2}
    ]


def test_json_lines_make_a_json_stream_and_leave_out_blank_lines(url: str, topic: str) -> None:
    done("append", topic, "--create", "--json-lines", url=url, given=b'{"a": 1}\n\n[1, 2]\n')
    assert done("read", topic, url=url) == '{"a": 1}\n[1, 2]\n'
    (row,) = json_lines(done("streams", "--prefix", topic, "--json", url=url))
    assert row["content_type"] == "application/json"


@pytest.mark.parametrize("named", [False, True])
def test_line_that_is_no_json_is_refused_with_its_number(url: str, topic: str, named: bool) -> None:
    name = ["--producer", "p"] if named else []
    message = refused("append", topic, "--create", "--json-lines", *name, url=url, given=b'{"a": 1}\n{"a":\n')
    assert "line 2 is not JSON" in message
    refused("append", topic, "{", "--json-lines", url=url)


@pytest.mark.parametrize(("name", "stored"), [([], "2 lines are"), (["--producer", "p"], "nothing was")])
def test_json_stream_has_its_bad_line_told_without_being_asked(
    url: str, topic: str, name: list[str], stored: str
) -> None:
    done("append", topic, "--create", "--json-lines", url=url)
    message = refused("append", topic, *name, url=url, given=b'{"a":1}\n{"a":2}\nbad\n{"a":3}\n')
    assert message.startswith("oncelog: line 3 is not JSON: ")
    assert message.endswith(f"; {stored} stored\n")
    blank = refused("append", topic, *name, url=url, given=b"1\n\n2\n")
    assert "line 2 is not JSON: it is blank (--json-lines leaves such lines out); " in blank


@pytest.mark.parametrize("name", [[], ["--producer", "p"]])
def test_line_that_is_too_long_is_refused_with_its_number(url: str, topic: str, name: list[str]) -> None:
    given = b"short\n" + b"x" * (limits.BATCH_BYTES_MAX + 1)
    assert "line 2 has" in refused("append", topic, "--create", *name, url=url, given=given)


def test_missing_stream_and_partition_are_refused_with_a_hint(url: str, topic: str) -> None:
    assert f"there is no stream {topic!r} (--create" in refused("append", topic, "v", url=url)
    assert "--create" in refused_here("append", topic, url=url, given=b"a\n")
    assert "--create" in refused_here("append", topic, "--producer", "p", url=url, given=b"a\n")
    done("append", topic, "v", "--create", url=url)
    there = f"there is no partition 1 of {topic!r}: it has 1 partition, and they count from 0\n"
    for create in ([], ["--create"]):
        assert there in refused_here("append", topic, "v", "--partition", "1", *create, url=url)
        assert there in refused_here("append", topic, "--partition", "1", *create, url=url, given=b"a\n")


def test_partition_that_a_new_stream_would_not_have_makes_nothing(url: str, topic: str) -> None:
    for value in (["v"], []):
        message = refused("append", topic, *value, "--create", "--partition", "2", url=url, given=b"a\n")
        assert f"there is no stream {topic!r} (--create makes one that has partition 0 alone" in message
    assert done("streams", "--prefix", topic, "--json", url=url) == ""
    with Client(url) as client:
        client.create_topic(topic, partitions=3, content_type="text/plain")
    assert done("append", topic, "v", "--create", "--partition", "2", url=url) == "0\n"


def test_missing_file_is_a_usage_error(url: str, topic: str) -> None:
    message = refused("append", topic, "--create", "--file", "no-such-file", url=url, code=exits.USAGE)
    assert "cannot read no-such-file" in message


class FailingDisk(io.RawIOBase):
    """Two lines, and then what a disk says that lost the rest."""

    def __init__(self) -> None:
        self.pieces = [b"one\n", b"two\nhal"]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        if not self.pieces:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        piece = self.pieces.pop(0)
        memoryview(buffer)[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize(
    ("name", "stored"), [([], "2 lines are stored, line 3 is the next"), (["--producer", "p"], "nothing was stored")]
)
def test_input_that_fails_in_the_middle_is_told_with_what_is_stored(
    url: str, topic: str, name: list[str], stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = io.BufferedReader(FailingDisk())
    monkeypatch.setattr("oncelog.cli.input_lines.lines_of", lambda _, bytes_max: lines_of(failing, bytes_max))
    message = refused_here("append", topic, "--create", *name, url=url)
    assert message == f"oncelog: cannot read stdin: Input/output error; {stored}\n"
    assert done_here("read", topic, url=url) == ("" if name else "one\ntwo\n")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="the system has no file that opens and cannot be read")
def test_file_that_opens_and_cannot_be_read_is_told(url: str, topic: str) -> None:
    message = refused_here("append", topic, "--create", "--file", "/proc/self/mem", url=url)
    assert message == "oncelog: cannot read /proc/self/mem: Input/output error; nothing was stored\n"


@pytest.mark.parametrize("file", ["", "--file -"])
def test_closed_stdin_is_a_usage_error(url: str, topic: str, file: str) -> None:
    command = f'exec "$0" append {topic} --create {file} <&-'
    result = subprocess.run(["sh", "-c", command, PROGRAM], capture_output=True, env=environment(url), check=False)
    assert result.returncode == exits.USAGE
    assert b"stdin is closed" in result.stderr
    assert b"Traceback" not in result.stderr
    assert done_here("streams", "--prefix", topic, "--json", url=url) == "", "nothing was tried"


def test_file_is_read_without_a_stdin(url: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    command = f'exec "$0" append {topic} --create --file {tmp_path}/lines <&-'
    result = subprocess.run(["sh", "-c", command, PROGRAM], capture_output=True, env=environment(url), check=False)
    assert (result.returncode, result.stdout) == (exits.DONE, b"2 lines stored at offsets 0 to 1\n"), result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["t", "v", "--file", "f"],
        ["t", "--id", "a"],
        ["t", "v", "--producer", "p"],
        ["t", "--resume"],
        ["t", "v", "--partition", "-1"],
        ["t", "v", "--id", ""],
        ["t", "v", "--id", "a\nb"],
        ["t", "--producer", "a\x00"],
        [],
    ],
)
def test_arguments_that_contradict_each_other_are_a_usage_error(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["append", *arguments]).exit_code == exits.USAGE


@pytest.mark.parametrize("status", [200, 301])
def test_a_page_of_somebody_else_is_no_stored_record(status: int) -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        """Reads go through, one would think: of the topic it says what a server says. Writes get a page."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if "/producers/" in self.path:
                self._answer(404, b'{"code": "not_found"}')
            else:
                self._answer(200, b'{"name": "t", "partitions": 1, "content_type": "text/plain"}')

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(status, b"<html></html>")

        def do_PUT(self) -> None:
            self.do_POST()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if body.startswith(b"{") else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what it needs."""

    with standing(Page) as url:
        for arguments in (["v"], ["v", "--create"], [], ["--producer", "imp"]):
            result = run_here("append", "t", *arguments, url=url, given=b"" if "v" in arguments else b"one\n")
            assert line_of(result, exits.UNREACHABLE).count("nothing is confirmed") >= 1
            assert "nothing was stored" not in result.stderr.decode()
            assert result.stdout == b""


# --- read ------------------------------------------------------------------------------------------------------


def test_read_begins_and_ends_where_it_is_told(url: str, topic: str) -> None:
    done("append", topic, "--create", url=url, given=b"0\n1\n2\n3\n")
    assert done("read", topic, "--from", "2", url=url) == "2\n3\n"
    assert done_here("read", topic, "--from", "start", "--count", "3", url=url) == "0\n1\n2\n"
    assert done_here("read", topic, "--from", "end", url=url) == ""
    assert done_here("read", topic, "--from", "1", "-n", "1", url=url) == "1\n"
    assert done_here("read", topic, "--from", "-1", "-n", "1", url=url) == "0\n"
    assert done_here("read", topic, "--from", "now", url=url) == ""
    assert run_here("read", topic, "--from", "sometime", url=url).returncode == exits.USAGE


def test_record_as_json_says_everything(url: str, topic: str) -> None:
    done("append", topic, "--create", "--key", "k", url=url, given=b"text\n\xff\n")
    text, binary = json_lines(done("read", topic, "--json", url=url))
    assert text["time"].endswith("Z")
    assert text | {"time": ""} == {"offset": 0, "time": "", "key": "k", "headers": [], "value": "text"}
    assert (binary["offset"], binary["base64"]) == (1, "/w==")


def test_follower_sees_what_is_written_later(url: str, topic: str) -> None:
    done("append", topic, "before", "--create", url=url)
    with begun("read", topic, "--follow", "--count", "3", url=url) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"before\n"
        done("append", topic, "after", url=url)
        assert follower.stdout.readline() == b"after\n"
        done("append", topic, "last", url=url)
        assert follower.communicate(timeout=60) == (b"last\n", b"")
    assert follower.returncode == exits.DONE


def test_follower_ends_quietly_when_interrupted(url: str, topic: str) -> None:
    done("append", topic, "v", "--create", url=url)
    with begun("read", topic, "--follow", url=url) as follower:
        assert follower.stdout is not None
        follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        assert follower.communicate(timeout=60) == (b"", b"")
    assert follower.returncode == exits.DONE


def test_reader_ends_quietly_when_nobody_listens_any_more(url: str, topic: str) -> None:
    done("append", topic, "--create", url=url, given=b"y\n" * 200_000)
    with begun("read", topic, url=url) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.stderr is not None
        assert reader.stderr.read() == b""
    assert reader.returncode == exits.DONE


def test_offset_that_was_trimmed_is_refused_with_the_floor(url: str, topic: str) -> None:
    done("append", topic, "--create", url=url, given=b"0\n1\n2\n")
    body = b'{"partition": 0, "floor": 2, "force": false}'
    request = urllib.request.Request(f"{url}/v1/topics/{topic}/trim", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()
    assert "begins at 2" in refused("read", topic, "--from", "0", url=url)
    assert done("read", topic, url=url) == "2\n"


@pytest.mark.parametrize("verb", [["read"], ["producers"], ["producers", "--prefix", "p"], ["receipts"]])
def test_missing_stream_is_told_with_where_to_look(url: str, topic: str, verb: list[str]) -> None:
    arguments = [*verb, topic, *(["i"] if verb == ["receipts"] else [])]
    listed = "oncelog streams lists those that are there"
    assert refused(*arguments, url=url) == f"oncelog: there is no stream {topic!r} ({listed})\n"
    done_here("append", topic, "v", "--create", url=url)
    message = refused_here(*arguments, "--partition", "1", url=url)
    assert f"there is no partition 1 of {topic!r}: it has 1 partition" in message


# --- on a terminal ---------------------------------------------------------------------------------------------


DRIVING = "\x7f\u009b2J\u202e\U000e0001ä"
"""Clears the screen, turns the line around, hides; and a letter."""


def test_json_cannot_drive_a_terminal_and_is_the_same_in_a_pipe(url: str, topic: str) -> None:
    with Client(url) as client:
        client.create_topic(topic, partitions=1, content_type="text/plain")
        client.stream(topic, "text/plain").append(DRIVING, key=DRIVING, headers={DRIVING: b"v"})
        client.move_cursor(f"{topic}{DRIVING}", topic, 1)
    for arguments in (["read", topic], ["cursors", "--prefix", topic]):
        piped = done(*arguments, "--json", url=url)
        assert piped.count(DRIVING) == (3 if arguments[0] == "read" else 1)
        with on_terminal(*arguments, "--json", url=url) as terminal:
            seen = shown(terminal).decode()
        assert r"\u007f\u009b2J\u202e\udb40\udc01ä" in seen
        assert all(letter.isprintable() for letter in seen.rstrip("\r\n"))
        assert json_lines(seen) == json_lines(piped)


def test_read_into_a_file_shows_how_far_it_is_and_one_on_the_terminal_does_not(
    url: str, topic: str, tmp_path: Path
) -> None:
    done("append", topic, "--create", url=url, given=b"a\nb\nc\n")
    for begin, said in (([], b"3/3"), (["--from", "1"], b"2/2")):
        with (tmp_path / "out").open("wb") as out, on_terminal("read", topic, *begin, url=url, stdout=out) as terminal:
            assert said in shown(terminal)
    assert (tmp_path / "out").read_bytes() == b"b\nc\n"
    for quiet in ([], ["--follow", "--count", "3"]):
        with on_terminal("read", topic, *quiet, url=url) as terminal:
            assert b"reading" not in shown(terminal)


@pytest.mark.parametrize("name", [[], ["--producer", "p"]])
def test_no_bar_lies_under_what_is_typed(url: str, topic: str, tmp_path: Path, name: list[str]) -> None:
    done_here("append", topic, "v", "--create", url=url)
    with on_terminal("append", topic, *name, url=url) as terminal:
        seen = shown(terminal, b"Ctrl-D ends")
        os.write(terminal, b"typed\n\x04")
        seen += shown(terminal)
    assert b"1 line stored at offset 1" in seen
    assert b"storing" not in seen
    (tmp_path / "file").write_bytes(b"a\n")
    with on_terminal("append", topic, "--file", str(tmp_path / "file"), url=url) as terminal:
        assert b"storing" in shown(terminal), "nobody types there"


# --- listings --------------------------------------------------------------------------------------------------


def test_streams_are_listed_in_pages_as_table_and_as_json(url: str, topic: str) -> None:
    for number in range(3):
        done("append", f"{topic}-{number}", "v", "--create", url=url)
    rows = json_lines(done("streams", "--prefix", topic, "--json", url=url))
    assert [row["topic"] for row in rows] == [f"{topic}-{number}" for number in range(3)]
    assert rows[0]["tail"] == 1
    table = done("streams", "--prefix", topic, url=url)
    assert all(row["topic"] in table for row in rows)
    page = run("streams", "--prefix", topic, "--limit", "2", "--json", url=url)
    assert len(page.stdout.splitlines()) == 2
    assert b"--after" in page.stderr
    rest = json_lines(done("streams", "--prefix", topic, "--after", f"{topic}-1", "--json", url=url))
    assert [row["topic"] for row in rest] == [f"{topic}-2"]


def test_empty_listings_say_so_and_are_empty_as_json(url: str, topic: str) -> None:
    assert b"no streams" in run("streams", "--prefix", topic, url=url).stderr
    assert done("streams", "--prefix", topic, "--json", url=url) == ""
    done("append", topic, "--create", url=url)
    assert b"no producers" in run("producers", topic, url=url).stderr
    assert b"no cursors" in run("cursors", "--prefix", topic, url=url).stderr


def test_empty_listing_says_what_was_asked_for(url: str, topic: str) -> None:
    done("append", topic, "--create", "--producer", "imp", url=url, given=b"a\n")
    for verb, what in ((["producers", topic], f"{topic} has no producers"), (["streams"], "there are no streams")):
        said = run_here(*verb, "--prefix", "http:", url=url).stderr.decode()
        assert said == f"{what} that begin with 'http:'\n"
        assert run_here(*verb, "--after", "zzz", url=url).stderr.decode() == f"{what} behind 'zzz'\n"
    said = run_here("streams", "--prefix", "a", "--after", "zzz", url=url).stderr.decode()
    assert said == "there are no streams that begin with 'a' behind 'zzz'\n"
    assert run("cursors", "--prefix", "zzz", url=url).stderr == b"there are no cursors that begin with 'zzz'\n"


def test_tables_in_a_pipe_have_no_blanks_at_the_ends_of_lines(url: str, topic: str) -> None:
    done("append", topic, "v", "--id", "i", "--create", url=url)
    done("append", f"{topic}-longer", "--create", "--producer", "p", url=url, given=b"a\n")
    for verb in (
        ["streams"],
        ["producers", f"{topic}-longer"],
        ["receipts", topic, "i"],
        ["doctor", "--http", "127.0.0.1:0"],
        ["verify", url],
    ):
        table = done(*verb, url=url).splitlines()
        assert len(table) > 2
        assert [line for line in table if line != line.rstrip()] == []


def test_producers_show_how_far_an_import_has_come(url: str, topic: str) -> None:
    done("append", topic, "--create", "--producer", "imp", url=url, given=b"a\nb\nc\n")
    (row,) = json_lines(done("producers", topic, "--json", url=url))
    assert (row["name"], row["scope"], row["last_sequence"], row["first"], row["next"]) == ("imp", "http", 2, 0, 3)
    assert "imp" in done("producers", topic, url=url)
    refused("producers", f"{topic}-missing", url=url)


def test_producers_are_found_by_their_own_names_in_every_scope(url: str, topic: str) -> None:
    done("append", topic, "--create", "--producer", "imp", url=url, given=b"a\n")
    with Client(url) as client:
        for name in ("imp", "imp-2", "other"):
            for dialect in get_args(DialectName):
                with client.producer(topic, "text/plain", producer_id=f"{name}-{dialect}", dialect=dialect) as producer:
                    producer.append("v")

    def rows(*arguments: str) -> list[Any]:
        return json_lines(done_here("producers", topic, "--json", *arguments, url=url))

    def listed(*arguments: str) -> list[str]:
        return [row["name"] for row in rows(*arguments)]

    ours = ["imp", "imp-2-durable-streams", "imp-durable-streams", "imp-2-x", "imp-x"]
    assert listed("--prefix", "imp") == ours
    assert json_lines(done("producers", topic, "--json", "--prefix", "imp", url=url)) == rows("--prefix", "imp")
    assert listed("--prefix", "nobody") == []
    for limit in range(1, len(ours)):
        page = run_here("producers", topic, "--json", "--prefix", "imp", "--limit", str(limit), url=url)
        assert [row["name"] for row in json_lines(page.stdout.decode())] == ours[:limit]
        after = page.stderr.decode().split("'")[1]
        assert listed("--prefix", "imp", "--after", after) == ours[limit:]
    for prefix in ("imp-d", "imp-x", "imp"):  # just as many as there are
        count = str(sum(name.startswith(prefix) for name in ours))
        assert run_here("producers", topic, "--json", "--prefix", prefix, "--limit", count, url=url).stderr == b""


def test_json_that_nests_too_deeply_is_refused_in_one_line(url: str, topic: str) -> None:
    deep = "[" * 20_000 + "]" * 20_000
    done("append", topic, "--create", url=url)
    assert "nested too deeply" in refused("append", topic, deep, "--json-lines", url=url)
    assert "line 2 is not JSON: nested" in refused(
        "append", topic, "--json-lines", url=url, given=f"1\n{deep}".encode()
    )


@pytest.mark.parametrize("option", ["--id", "--producer"])
@pytest.mark.parametrize("name", [" a", "a ", "", "a\nb"])
def test_names_that_cannot_travel_are_refused_as_usage(url: str, topic: str, option: str, name: str) -> None:
    value = ["v"] if option == "--id" else []
    result = run("append", topic, *value, option, name, url=url)
    assert result.returncode == exits.USAGE
    assert b"Traceback" not in result.stderr


def test_cursors_are_listed(url: str, topic: str) -> None:
    done("append", topic, "--create", url=url, given=b"a\nb\n")
    body = b'{"frontier": 1, "metadata": "", "pinned": true}'
    request = urllib.request.Request(f"{url}/v1/cursors/{topic}-c/{topic}", body, method="PUT")
    urllib.request.urlopen(request).close()
    (row,) = json_lines(done("cursors", "--prefix", topic, "--json", url=url))
    assert (row["topic"], row["frontier"], row["pinned"]) == (topic, 1, True)
    assert "pinned" in done("cursors", "--prefix", topic, url=url)


def test_receipt_says_what_became_of_an_id(url: str, topic: str) -> None:
    done("append", topic, "v", "--id", "an id/ä", "--create", url=url)
    (receipt,) = json_lines(done("receipts", topic, "an id/ä", "--json", url=url))
    assert (receipt["topic"], receipt["first"], receipt["next"], receipt["removed"]) == (topic, 0, 1, False)
    assert "stored" in done("receipts", topic, "an id/ä", url=url)
    assert "written" in done("receipts", topic, "an id/ä", url=url)
    refused("receipts", topic, "unknown", url=url)


def test_receipt_of_a_removed_record_tells_when_the_id_was_last_used(url: str, topic: str) -> None:
    done("append", topic, "v", "--id", "i", "--create", url=url)
    with Client(url) as client:
        client.delete_records(topic, [(0, 1)])
    said = done("receipts", topic, "i", url=url)
    assert "removed since" in said
    assert "last used" in said
    assert "written" not in said


# --- verify ----------------------------------------------------------------------------------------------------


def test_live_log_is_verified(url: str, topic: str) -> None:
    done("append", topic, "--create", "--producer", "p", url=url, given=b"a\nb\n")
    assert "sound" in done("verify", url, url=url)
    (report,) = json_lines(done("verify", url, "--json", url=url))
    assert report["damages"] == []
    assert report["records"] >= 2
    assert report["producers"] >= 1


def test_log_that_is_being_written_is_sound_all_the_while(url: str, topic: str) -> None:
    done("append", topic, "--create", url=url)
    with begun("append", topic, url=url) as plain, begun("append", topic, "--producer", "p", url=url) as named:
        for process in (plain, named):
            assert process.stdin is not None
            process.stdin.write(b"".join(b"%d\n" % number for number in range(60_000)))
            process.stdin.flush()
        (report,) = json_lines(done("verify", url, "--json", url=url))
        for process in (plain, named):
            process.communicate(timeout=60)
            assert process.returncode == exits.DONE
    assert report["damages"] == []
    (report,) = json_lines(done("verify", url, "--json", url=url))
    assert report["damages"] == []


@pytest.fixture
def damaging(url: str) -> Iterator[str]:
    """A server in between that changes one byte of every record batch that comes through."""

    class Between(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            accepted = {"Accept": self.headers.get("Accept", "*/*")}
            asked = urllib.request.Request(url + self.path, headers=accepted, method=self.command)
            with urllib.request.urlopen(asked) as answer:
                body = answer.read()
                if "batches" in answer.headers["Content-Type"] and body:
                    body = body[:-1] + bytes([body[-1] ^ 1])
                self.send_response(answer.status)
                for name in ("Content-Type", "Stream-Next-Offset", "Stream-Up-To-Date"):
                    if answer.headers[name] is not None:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what it needs."""

    with standing(Between) as between:
        yield between


def test_damage_on_the_way_is_found_and_ends_with_4(url: str, topic: str, damaging: str) -> None:
    done("append", topic, "v", "--create", url=url)
    result = run("verify", damaging)
    assert result.returncode == exits.DAMAGED
    assert f"damage: {topic}, partition 0: the batch at offset 0 cannot be read".encode() in result.stdout
    assert run("read", topic, url=damaging).returncode == exits.UNREACHABLE


# --- doctor ----------------------------------------------------------------------------------------------------


def test_doctor_knows_the_server_that_has_the_port(server: Server) -> None:
    checks = json_lines(done("doctor", "--http", server.address, "--json", url=""))[0]["checks"]
    (port,) = [check for check in checks if check["name"].startswith("port ")]
    assert port["status"] == "ok"
    assert port["found"].startswith("oncelog ")


# --- no server -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["streams"], ["append", "t", "v"], ["append", "t"], ["read", "t"], ["receipts", "t", "i"], ["cursors"]],
)
def test_server_that_is_not_there_ends_with_3(arguments: list[str]) -> None:
    message = refused(*arguments, url="http://127.0.0.1:1", code=exits.UNREACHABLE)
    assert "cannot reach http://127.0.0.1:1" in message
    assert "Connection refused" in message
    assert "Errno" not in message


def test_verify_of_a_server_that_is_not_there_ends_with_3() -> None:
    assert run("verify", "http://127.0.0.1:1").returncode == exits.UNREACHABLE
    assert run("verify", "localhost:1").returncode == exits.UNREACHABLE, "an address is one without its scheme, too"


@pytest.mark.parametrize(
    "arguments",
    [["streams"], ["cursors"], ["append", "t", "v", "--create"], ["append", "t"], ["read", "t"], ["producers", "t"]],
)
def test_address_may_come_without_its_scheme(server: Server, arguments: list[str]) -> None:
    done("append", "t", "v", "--create", url=server.url)
    done(*arguments, "--url", server.address, url="")
    done(*arguments, url=server.address)


def test_address_that_is_none_is_a_usage_error() -> None:
    assert run("streams", "--url", "nowhere").returncode == exits.USAGE
