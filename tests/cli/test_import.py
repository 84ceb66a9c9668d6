"""A named import stores every line once, whatever is killed on the way: the program, the server, or neither of two."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog.cli import exits, lines
from oncelog.cli.append import PIPE_NOTE
from oncelog.cli.importing import DIGEST_HEADER, Digest, Import, Progress, Stored, encoded, progress_of
from oncelog.cli.lines import Batch
from oncelog.cli.main import app
from oncelog.cli.remote import reached
from oncelog.client import Client, IdConflict
from tests.cli.running import PROGRAM, Server, begun, done, environment, json_lines, run, serving

COUNT = 3 * lines.BATCH_LINES_MAX + 123


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("--in-memory", "--http", "127.0.0.1:0") as server:
        yield server.url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(COUNT)))
    return path


def first_records(count: int, topic: str, url: str) -> None:
    """Waits until so many records are there."""
    done("read", topic, "--follow", "--count", str(count), url=url)


def test_run_that_is_killed_is_continued(url: str, file: Path) -> None:
    done("append", "killed", "--create", url=url)
    content = file.read_bytes()
    with begun("append", "killed", "--producer", "imp", url=url) as process:
        assert process.stdin is not None
        # The pipe stays open: two batches are stored, the rest is on its way when the program is killed.
        process.stdin.write(content[: len(content) // 5 * 4])
        process.stdin.flush()
        first_records(2 * lines.BATCH_LINES_MAX, "killed", url)
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    message = run("append", "killed", "--producer", "imp", "--file", str(file), url=url)
    assert message.returncode == exits.REFUSED
    assert b"--resume" in message.stderr
    (summary,) = json_lines(
        done("append", "killed", "--producer", "imp", "--resume", "--file", str(file), "--json", url=url)
    )
    assert summary["skipped"] >= 2 * lines.BATCH_LINES_MAX
    assert summary["skipped"] + summary["records"] == COUNT
    assert done("read", "killed", url=url).encode() == content
    assert "0 lines stored" in done("append", "killed", "--producer", "imp", "--resume", "-f", str(file), url=url)


def told(said: bytes) -> str:
    """What stands on stderr beside the note that a named import from a pipe begins with."""
    return said.decode().removeprefix(f"{PIPE_NOTE}\n")


def test_named_import_from_a_pipe_says_that_it_stores_full_batches(url: str, file: Path, tmp_path: Path) -> None:
    note = f"{PIPE_NOTE}\n".encode()
    arguments = ("append", "piped", "--create", "--producer")
    with begun(*arguments, "p", url=url) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert process.stderr.readline() == note
        assert done("read", "piped", url=url) == "", "it is said while nothing is stored"
        process.communicate(timeout=60)
    os.mkfifo(tmp_path / "fifo")
    with begun(*arguments, "fifo", "--file", str(tmp_path / "fifo"), url=url) as process:
        (tmp_path / "fifo").write_bytes(b"a\n")
        assert process.communicate(timeout=60)[1] == note
    assert run(*arguments, "f", "--file", str(file), url=url).stderr == b""
    with file.open("rb") as redirected:
        command = [PROGRAM, *arguments, "redirected"]
        result = subprocess.run(command, stdin=redirected, capture_output=True, env=environment(url), check=True)
    assert result.stderr == b""
    assert run("append", "piped", url=url, given=b"a\n").stderr == b"", "one without a name waits for nothing"


@pytest.mark.parametrize("named", [True, False])
def test_run_that_is_interrupted_says_what_is_stored(url: str, file: Path, named: bool) -> None:
    topic = f"interrupted-{named}"
    done("append", topic, "--create", url=url)
    name = ["--producer", "imp"] if named else []
    with begun("append", topic, *name, url=url) as process:
        assert process.stdin is not None
        process.stdin.write(file.read_bytes())
        process.stdin.flush()
        first_records(3 * lines.BATCH_LINES_MAX, topic, url)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == exits.REFUSED
    stored = len(done("read", topic, url=url).splitlines())
    message = told(said)
    assert message.startswith(f"oncelog: interrupted; {stored:,} lines are stored"), said
    assert message.count("\n") == 1
    assert ("--resume" in message) == named


@pytest.mark.parametrize("before", [b"", b"a\n"])
def test_import_that_is_interrupted_before_it_stores_says_so(
    url: str, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    topic = f"at-once-{len(before)}"
    done("append", topic, "--create", "--producer", "imp", url=url, given=before)

    def interrupted(_file: object, _bytes_max: int) -> Iterator[bytes]:
        raise KeyboardInterrupt

    monkeypatch.setattr("oncelog.cli.input_lines.lines_of", interrupted)
    result = CliRunner().invoke(app, ["append", topic, "--url", url, "--producer", "imp", "--resume"])
    assert result.exit_code == exits.REFUSED
    resumable = " by this run, --resume goes on behind the 1 line stored before" if before else ""
    assert result.stderr == f"oncelog: interrupted; nothing was stored{resumable}\n"


@pytest.mark.parametrize("named", [True, False])
def test_refusal_in_the_middle_names_the_line_and_what_is_stored(url: str, named: bool) -> None:
    topic = f"closed-{named}"
    done("append", topic, "--create", "--json-lines", url=url)
    name = ["--producer", "imp"] if named else []
    with begun("append", topic, "--json-lines", *name, url=url) as process:
        assert process.stdin is not None
        # A named import sends full batches alone; the blank line is one of the input, and no record.
        process.stdin.write(b"1\n\n" + b"2\n" * (lines.BATCH_LINES_MAX - 1))
        process.stdin.flush()
        first_records(lines.BATCH_LINES_MAX, topic, url)
        with Client(url) as client:
            client.stream(topic).close()
        _, said = process.communicate(b"3\n4\n", timeout=60)
    assert process.returncode == exits.REFUSED
    assert told(said) == (
        f"oncelog: the stream is closed; its end is {lines.BATCH_LINES_MAX} "
        "(read what it holds; new records need a stream of another name); "
        f"{lines.BATCH_LINES_MAX:,} lines are stored, line {lines.BATCH_LINES_MAX + 2:,} is the next\n"
    )


def test_lines_that_were_added_are_stored_and_a_shorter_input_is_refused(url: str, file: Path) -> None:
    done("append", "grown", "--create", "--producer", "p", "--file", str(file), url=url)
    with file.open("ab") as more:
        more.write(b"one more\n")
    again = ("append", "grown", "--producer", "p", "--resume", "--file", str(file))
    assert done(*again, url=url).startswith(f"1 line stored at offset {COUNT:,}, {COUNT:,} skipped")
    file.write_bytes(b"line 0\n")
    refused = run(*again, url=url)
    assert refused.returncode == exits.REFUSED
    assert b"has only 1; nothing was stored by this run (another input takes another --producer)" in refused.stderr


def test_last_line_without_an_end_is_stored_with_a_warning(url: str) -> None:
    arguments = ("append", "open", "--create", "--json-lines", "--producer", "p", "--resume")
    first = run(*arguments, url=url, given=b"1\n2")
    assert first.returncode == exits.DONE
    assert told(first.stderr) == (
        "line 2 has no line end, and is stored as it is: if more of it comes, --resume refuses the input\n"
    )
    assert told(run(*arguments, url=url, given=b"1\n2").stderr) == "", "nothing was stored by this run"
    assert told(run(*arguments, url=url, given=b"1\n2\n3\n").stderr) == "", "it had come to its end"
    assert told(run(*arguments, url=url, given=b"1\n2\n3\n4\n ").stderr) == "", "a blank line is no record"
    grown = run(*arguments, url=url, given=b"1\n2\n3\n45\n")
    assert b"line 4 is not the one" in grown.stderr
    unnamed = run("append", "open", "--json-lines", url=url, given=b"5")
    assert unnamed.stderr == b"", "nobody goes on with it"


@pytest.mark.parametrize("blank", [b"", b"\n \n"], ids=["", "blank lines"])
def test_name_of_another_input_is_refused_and_none_of_its_lines_is_lost(url: str, blank: bytes) -> None:
    """As many lines as the first one had would be taken for stored."""
    topic = f"nightly-{len(blank)}"
    arguments = ("append", topic, "--producer", "nightly", "--resume", "--json-lines")
    done(*arguments, "--create", url=url, given=b"1\n2\n" + blank + b"3\n")
    other = run(*arguments, url=url, given=b"1\n4\n" + blank + b"3\n5\n")
    assert other.returncode == exits.REFUSED
    assert b"line 2 is not the one that this import has stored; nothing was stored by this run" in other.stderr
    assert done(*arguments, url=url, given=b"1\n2\n" + blank + b"3\n6\n").startswith("1 line stored at offset 3")
    assert done("read", topic, url=url).split() == ["1", "2", "3", "6"]


@pytest.mark.parametrize("place", [0, 1, 2 * lines.BATCH_LINES_MAX - 2])
def test_early_line_that_differs_is_noticed_behind_any_number_of_batches(url: str, file: Path, place: int) -> None:
    """The last batch holds none of them: without a digest they were taken for stored, and lost."""
    topic = f"early-{place}"
    content = file.read_bytes().splitlines(keepends=True)
    done("append", topic, "--create", "--producer", "p", "--file", str(file), url=url)
    changed = [*content[:place], b"other\n", *content[place + 1 :], b"new\n"]
    swapped = [*content[:place], content[place + 1], content[place], *content[place + 2 :], b"new\n"]
    for others in (changed, swapped):
        other = file.with_name("other")
        other.write_bytes(b"".join(others))
        result = run("append", topic, "--producer", "p", "--resume", "--file", str(other), url=url)
        assert result.returncode == exits.REFUSED
        assert f"the first {COUNT:,} lines are not those that this import has stored; nothing" in result.stderr.decode()
    grown = b"".join([*content, b"new\n"])
    for _ in range(2):
        file.write_bytes(grown := grown + b"new\n")
        done("append", topic, "--producer", "p", "--resume", "--file", str(file), url=url)
    assert done("read", topic, url=url).encode() == grown


@pytest.mark.parametrize("blanks", [[], ["--json-lines"]])
def test_blanks_around_a_line_belong_to_it(url: str, blanks: list[str]) -> None:
    topic = "blanks" + "".join(blanks)
    first = b"  1 \r\n\r\n\t2\n \n3 \n"
    kind = ["--create", *blanks]
    done("append", topic, *kind, "--producer", "p", url=url, given=first)
    stored = done("read", topic, url=url)
    again = done("append", topic, *blanks, "--producer", "p", "--resume", url=url, given=first + b" 4\r\n")
    assert again.startswith("1 line stored at offset")
    assert done("read", topic, url=url).startswith(stored)


def test_lines_that_are_cut_elsewhere_are_others() -> None:
    assert len({digest_of(cut).value() for cut in ([b"ab"], [b"a", b"b"], [b"", b"ab"], [b"ab", b""], [b"a1:b"])}) == 5


def test_digest_is_a_header_of_the_last_record_of_every_batch(url: str, file: Path) -> None:
    done("append", "marked", "--create", "--producer", "p", "--key", "k", "--file", str(file), url=url)
    rows = json_lines(done("read", "marked", "--json", url=url))
    marked = [row["offset"] for row in rows if row["headers"]]
    assert marked == [*range(lines.BATCH_LINES_MAX - 1, COUNT, lines.BATCH_LINES_MAX), COUNT - 1]
    assert {name for row in rows for name, _ in row["headers"]} == {DIGEST_HEADER}
    assert {row["key"] for row in rows} == {"k"}


def test_batch_without_a_digest_is_compared_as_it_was_and_is_the_same_batch(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A version that knew no digest stores a batch. 2. It arrives once more, with one. 3. The import goes on."""
    done("append", "before", "--create", url=url)
    stored: list[Stored] = []
    with reached(url) as log:
        with monkeypatch.context() as patch:
            patch.setattr("oncelog.cli.importing.encoded", lambda values, key, _headers: encoded(values, key))
            Import(log, "before", 0, "p", Progress(0, -1), None, Digest()).store([Batch(2, names(3))], stored.append)
        Import(log, "before", 0, "p", Progress(0, -1), None, Digest()).store([Batch(2, names(3))], stored.append)
    assert [batch.duplicate for batch in stored] == [False, True]
    other = run("append", "before", "--producer", "p", "--resume", url=url, given=b"x\nline 1\nline 2\nline 3\n")
    assert b"line 1 is not the one that this import has stored" in other.stderr
    again = done("append", "before", "--producer", "p", "--resume", url=url, given=b"\n".join(names(4)))
    assert again.startswith("1 line stored at offset 3")
    (_, _, _, last) = json_lines(done("read", "before", "--json", url=url))
    assert [name for name, _ in last["headers"]] == [DIGEST_HEADER]


def test_import_whose_last_batch_is_trimmed_goes_on(url: str) -> None:
    done("append", "trimmed", "--create", "--producer", "p", url=url, given=b"a\nb\n")
    with Client(url) as client:
        client.trim("trimmed", 2)
    again = done("append", "trimmed", "--producer", "p", "--resume", url=url, given=b"a\nb\nc\n")
    assert again.startswith("1 line stored at offset 2")


def test_deleted_records_of_the_last_batch_are_not_compared(url: str) -> None:
    done("append", "holey", "--create", "--producer", "p", url=url, given=b"a\nb\nc\n")
    with Client(url) as client:
        client.delete_records("holey", [(1, 2)])
    other = run("append", "holey", "--producer", "p", "--resume", url=url, given=b"a\nb\nx\ny\n")
    assert b"line 3 is not the one" in other.stderr
    again = done("append", "holey", "--producer", "p", "--resume", url=url, given=b"a\nb\nc\nd\n")
    assert again.startswith("1 line stored at offset 3")


def test_two_runs_at_once_store_every_line_once(url: str, file: Path) -> None:
    done("append", "twice", "--create", url=url)
    arguments = ("append", "twice", "--producer", "imp", "--resume", "--file", str(file))
    with contextlib.ExitStack() as running:
        runs = [running.enter_context(begun(*arguments, url=url)) for _ in range(3)]
        said = [process.communicate(timeout=60) for process in runs]
    codes = [process.returncode for process in runs]
    assert codes == [exits.DONE] * 3, said
    assert done("read", "twice", url=url).encode() == file.read_bytes()


def digest_of(stored: list[bytes]) -> Digest:
    digest = Digest()
    for line in stored:
        digest.add(line)
    return digest


def names(count: int) -> list[bytes]:
    return [b"line %d" % number for number in range(count)]


@pytest.mark.parametrize("ahead", [0, 30])
def test_batch_of_the_old_run_that_comes_late_is_not_doubled(url: str, ahead: int) -> None:
    """1. A run hangs. 2. Another asks how far it has come. 3. What hung arrives. 4. The other one sends the same."""
    topic = f"late-{ahead}"
    done("append", topic, "--create", "--producer", "imp", url=url, given=b"\n".join(names(3)))
    stored: list[Stored] = []
    with reached(url) as log:
        known = progress_of(log, topic, 0, "imp")
        assert known == Progress(epoch=0, last_line=2, first=0, next=3)
        runs = [Import(log, topic, 0, "imp", known, None, digest_of(names(3))) for _ in range(2)]
        batches = [Batch(5, names(6)[3:]), *(Batch(6 + more, [b"more"]) for more in range(ahead))]
        for run_ in runs:
            run_.store(batches, stored.append)
    assert [batch.duplicate for batch in stored] == [False] * len(batches) + [True] * len(batches)
    assert stored[: len(batches)] == [batch._replace(duplicate=False) for batch in stored[len(batches) :]]
    assert done("read", topic, url=url).splitlines()[:6] == [line.decode() for line in names(6)]
    assert len(done("read", topic, url=url).splitlines()) == 6 + ahead


@pytest.mark.parametrize("counts", [(6, 9), (9, 6)])
def test_runs_of_inputs_that_differ_in_length_store_no_line_twice(url: str, counts: tuple[int, int]) -> None:
    """The file grew between them: the numbers of their last lines differ, the lines they begin with do not."""
    topic = f"grew-{counts[0]}"
    done("append", topic, "--create", "--producer", "imp", url=url, given=b"\n".join(names(3)))
    with reached(url) as log:
        known = progress_of(log, topic, 0, "imp")
        first, second = (Import(log, topic, 0, "imp", known, None, digest_of(names(3))) for _ in range(2))
        first.store([Batch(counts[0] - 1, names(counts[0])[3:])], lambda batch: None)
        with pytest.raises(IdConflict):
            second.store([Batch(counts[1] - 1, names(counts[1])[3:])], lambda batch: None)
    content = b"\n".join(names(9))
    done("append", topic, "--producer", "imp", "--resume", url=url, given=content)
    assert done("read", topic, url=url).encode() == content + b"\n"


def test_run_goes_on_when_the_server_is_killed_and_comes_back(tmp_path: Path, file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = ("--data", str(tmp_path / "log"), "--http", address)
    content = file.read_bytes()
    half = content.index(b"\n", len(content) // 2) + 1
    for name in (["--producer", "imp"], []):
        topic = f"topic-{len(name)}"
        with serving(*arguments) as server, begun("append", topic, "--create", *name, url=server.url) as process:
            assert process.stdin is not None
            process.stdin.write(content[:half])
            process.stdin.flush()
            first = _when_made(topic, server)
            first_records(first, topic, server.url)
            server.stop(signal.SIGKILL)
            process.stdin.write(content[half:])
            with serving(*arguments) as again:
                _, said = process.communicate(timeout=60)
                assert process.returncode == exits.DONE, said
                assert done("read", topic, url=again.url).encode() == content
                assert "sound" in done("verify", again.url, url=again.url)


def _when_made(topic: str, server: Server) -> int:
    """One record, once the stream is there: a reader of a missing stream is refused."""
    while not done("streams", "--prefix", topic, "--json", url=server.url):
        assert server.process.poll() is None
    return 1
