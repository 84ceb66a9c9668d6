"""`oncelog serve`: it says when it is ready, stops when told, and a start that fails says why in one line."""

import errno
import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog.cli import exits
from oncelog.cli.machine import file_system_kind
from oncelog.cli.main import app
from oncelog.errors import DiskFull
from oncelog.limits import FRAME_ALIGN_BYTES, MIB
from oncelog.servers import room
from oncelog.servers.faces import FACES
from oncelog.storage.frame import FRAME_HEADER, FRAME_MAGIC
from oncelog.storage.index.child import journal_directory
from oncelog.storage.segment import segment_name
from tests.cli.running import Server, done, run, serving

ANY_PORT = ("--any-port",)


def failed(*arguments: str) -> tuple[int, str]:
    """The exit code, and the one line that says why."""
    result = run("serve", "--any-port", *arguments)
    message = result.stderr.decode()
    assert not result.stdout
    assert "Traceback" not in message
    assert message.count("\n") == 1, message
    return result.returncode, message


def test_ready_line_says_where_and_how_safe(tmp_path: Path) -> None:
    with serving("--in-memory", *ANY_PORT) as server:
        assert (server.durability, server.data) == ("none", "memory")
        assert server.address.startswith("127.0.0.1:")
        assert not server.address.endswith(":0")
    with serving("--data", str(tmp_path / "new" / "log"), *ANY_PORT) as server:
        assert (server.durability, server.data) == ("fdatasync", str(tmp_path / "new" / "log"))


MEMORY = Path("/dev/shm")


@pytest.mark.skipif(file_system_kind(MEMORY) != "tmpfs", reason="the system has no directory that is memory")
def test_data_directory_that_is_memory_is_told(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as data:
        small = ("--set", f"storage.segment_bytes={8 * MIB}")
        for place in (f"{data}/log", str(tmp_path)):
            with serving("--data", place, *small, *ANY_PORT) as server:
                assert server.durability == "fdatasync"
                server.process.terminate()
                said = server.process.communicate(timeout=60)[1]
            hint = "it is memory: nothing survives a restart; give a --data on a disk"
            assert said == (f"oncelog: {place} is on tmpfs: {hint}\n" if place.startswith(data) else "")


def test_stop_ends_with_0_and_the_next_start_has_everything(tmp_path: Path) -> None:
    for number, told in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGTERM)):
        with serving("--data", str(tmp_path), *ANY_PORT) as server:
            done("append", "t", f"value {number}", "--create", url=server.url)
            assert server.stop(told) == exits.DONE
    with serving("--data", str(tmp_path), *ANY_PORT) as server:
        assert done("read", "t", url=server.url) == "value 0\nvalue 1\nvalue 2\n"


def test_settings_come_from_the_file_and_the_command_line_is_stronger(tmp_path: Path) -> None:
    file = tmp_path / "oncelog.toml"
    file.write_text(f'data = "{tmp_path / "a"}"\n[http]\naddress = "127.0.0.1:1"\n')
    place = str(tmp_path / "b")
    with serving("--config", str(file), "--data", place, "--set", "http.address=127.0.0.1:0") as server:
        assert server.data == place


def test_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a log")
    code, message = failed("--data", str(file), *ANY_PORT)
    assert code == exits.REFUSED
    assert message == f"oncelog: cannot open {file}: it is a file; --data names a directory\n"
    _, message = failed("--data", str(file / "log"), *ANY_PORT)
    assert message == f"oncelog: cannot open {file}/log: {file} is a file; --data names a directory\n"
    assert file.read_text() == "not a log"


def test_address_of_ip_version_6_is_understood() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with serving("--in-memory", "--http", "[::1]:0") as server:
        assert server.address.startswith("[::1]:")
        done("append", "t", "v", "--create", url=server.url)


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), *ANY_PORT):
        code, message = failed("--data", str(tmp_path), *ANY_PORT)
    assert code == exits.REFUSED
    assert "another process writes to this directory" in message
    assert str(tmp_path) in message


def test_address_in_use_is_refused_and_leaves_nothing_on_disk(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, message = failed("--data", str(tmp_path / "log"), "--http", address)
    assert code == exits.REFUSED
    assert not (tmp_path / "log").exists()
    assert f"cannot listen on {address}: another process does" in message


def make_disk_small(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    """Every disk, as far as the system says how much is free."""
    blocks = free_bytes // 4096
    state = os.statvfs_result((4096, 4096, 5 * blocks, blocks, blocks, 0, 0, 0, 0, 255))
    for name in ("statvfs", "fstatvfs"):
        monkeypatch.setattr(os, name, lambda _place: state)


def test_disk_without_room_to_begin_is_told_in_one_line_and_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_disk_small(monkeypatch, 20 * MIB)
    log = tmp_path / "log"
    result = CliRunner().invoke(app, ["serve", "--data", str(log), *ANY_PORT])
    assert result.exit_code == exits.REFUSED
    assert result.stderr == (
        f"oncelog: cannot open {log}: 20 MiB are free there, and a new log begins with 64 MiB and soon takes 256 MiB "
        "(make room, name another --data, or set a smaller storage.segment_bytes)\n"
    )
    assert not list(tmp_path.iterdir())


def test_log_that_is_there_is_opened_on_a_disk_without_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It can still be read, and what it has in advance is still written to."""
    with serving("--data", str(tmp_path), *ANY_PORT) as server:
        assert server.stop() == exits.DONE
    make_disk_small(monkeypatch, 0)
    room.refuse_to_begin(tmp_path, 64 * MIB)
    with pytest.raises(DiskFull):
        room.refuse_to_begin(tmp_path / "another", 64 * MIB)


@pytest.mark.parametrize("error", [DiskFull("cannot open the journal"), OSError(errno.ENOSPC, "no space")])
def test_start_that_runs_out_of_room_says_how_much_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def run_out(*_: object) -> int:
        raise error

    monkeypatch.setattr("oncelog.servers.process.run", run_out)
    make_disk_small(monkeypatch, 90 * MIB)
    result = CliRunner().invoke(app, ["serve", "--data", str(tmp_path), *ANY_PORT])
    assert result.exit_code == exits.REFUSED
    what = "cannot open the journal" if isinstance(error, DiskFull) else "No space left on device"
    way = "make room for a whole segment, and some for the index"
    assert result.stderr == f"oncelog: cannot open {tmp_path}: {what}; 90 MiB are free there ({way})\n"


def test_unknown_host_is_refused() -> None:
    code, message = failed("--in-memory", "--http", "no.such.host.invalid:0")
    assert code == exits.REFUSED
    assert "no.such.host.invalid" in message


def test_address_of_another_machine_is_refused_with_those_that_are_ours(tmp_path: Path) -> None:
    address = "203.0.113.1:4999"  # kept for documents: nobody has it
    code, message = failed("--data", str(tmp_path / "log"), "--http", address)
    assert code == exits.REFUSED
    assert message == (
        f"oncelog: cannot listen on {address}: it is no address of this machine (127.0.0.1 is for programs on it "
        "alone, 0.0.0.0 is every one it has)\n"
    )
    assert not (tmp_path / "log").exists()


def test_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, message = failed("--data", str(tmp_path / "file"), *ANY_PORT)
    assert code == exits.REFUSED
    assert str(tmp_path / "file") in message


def test_damage_ends_the_start_with_4(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), *ANY_PORT) as server:
        server.stop()
    segment = min(journal_directory(tmp_path).glob("segment-*"))
    damaged = bytearray(segment.read_bytes())
    damaged[9] ^= 1
    segment.write_bytes(damaged)
    code, message = failed("--data", str(tmp_path), *ANY_PORT)
    assert code == exits.DAMAGED
    assert segment.name in message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--data DIR or --in-memory"),
        (["--in-memory", "--data", "d"], "stands beside data"),
        (["--in-memory", "--set", "data=d"], "stands beside data"),
        (["--data", "d", "--set", "in_memory=true"], "stands beside data"),
        (["--set", "data="], "is no path"),
        (["--in-memory", "--http", "nowhere"], 'http.address = "nowhere": there is no port'),
        (["--in-memory", "--set", "http.idle_ms=1"], "http.idle_ms = 1: is out of range"),
        (["--in-memory", "--set", "http.idle=1"], "did you mean http.idle_ms?"),
        (["--in-memory", "--set", "http.idle_ms=abc"], 'http.idle_ms = "abc": has another type'),
        (["--in-memory", "--set", "http.idle_ms=1\nx=2"], "has another type"),
        (["--in-memory", "--config", "missing.toml"], "missing.toml: cannot be read"),
    ],
)
def test_settings_that_make_no_sense_are_a_usage_error(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == exits.USAGE
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--set", "x"], ["--set", "=1"], ["--no-such-option"], ["extra"]])
def test_arguments_that_cannot_be_read_are_a_usage_error(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["serve", "--in-memory", *arguments]).exit_code == exits.USAGE


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--data", "d", "--set", "data=other"], "--data"),
        (["--in-memory", "--set", "in_memory=false"], "--in-memory"),
        (["--in-memory", "--http", "127.0.0.1:0", "--set", "http.address=127.0.0.1:1"], "--http"),
    ],
)
def test_setting_that_has_an_option_of_its_own_is_not_said_in_two_ways(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["serve", *arguments])
    assert result.exit_code == exits.USAGE
    assert f"stands beside {option}: say it once" in result.stderr
    assert not list(tmp_path.iterdir())


def test_directory_without_a_name_is_a_usage_error_and_not_the_current_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A shell's variable that is not set."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["serve", "--data", "", *ANY_PORT])
    assert result.exit_code == exits.USAGE
    assert "it is empty, and names no directory" in result.stderr
    assert CliRunner().invoke(app, ["verify", ""]).exit_code == exits.USAGE
    assert not list(tmp_path.iterdir())


def test_start_that_cuts_a_torn_group_off_says_where(tmp_path: Path) -> None:
    few = [part for kind in FACES for part in ("--set", f"{kind.name}.connections_max=10")]
    arguments = ("--data", str(tmp_path), *ANY_PORT, *few)
    with serving(*arguments) as server:
        assert server.stop() == exits.DONE
    segment = journal_directory(tmp_path) / segment_name(0)
    end = segment.read_bytes().rindex(FRAME_MAGIC) + FRAME_ALIGN_BYTES
    header = FRAME_HEADER.pack(FRAME_MAGIC, 5, 1 << 40, end // FRAME_ALIGN_BYTES, 0, 0)
    with segment.open("r+b") as file:
        file.seek(end)
        file.write(header)
    again = Server(*arguments)
    again.process.send_signal(signal.SIGTERM)
    _, told = again.process.communicate(timeout=60)
    assert told.startswith(f"oncelog: a torn group was cut off the journal's end, {segment_name(0)} at byte {end}: ")
    assert told.count("\n") == 1
