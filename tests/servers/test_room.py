"""A disk without room: health and metrics say that writes are refused, why, and when they are taken again."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from oncelog import limits
from oncelog.engine import open as opening
from oncelog.engine.engine import Settings
from oncelog.limits import BATCH_BYTES_MAX, KIB, MIB, SPARES_WANTED
from oncelog.servers import room
from tests.engine.test_full_disk import FullDisk
from tests.servers.running import SETTINGS, Running, running
from tests.servers.talking import request

PATH = "/v1/stream/a"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "protocols" / "http.md"
SEGMENT = SETTINGS.segment_bytes


@contextmanager
def on_a_disk_that_fills_up() -> Iterator[tuple[Running, FullDisk]]:
    disk = FullDisk()
    with mock.patch.object(opening, "MemoryDisk", return_value=disk), running() as server:
        assert server.ask("PUT", PATH, headers={"Content-Type": "text/plain"}).status == 201
        server.until(lambda: server.engine.statistics().journal.spares == SPARES_WANTED)
        yield server, disk


def write(server: Running, size: int = MIB) -> int:
    return server.ask("POST", PATH, b"x" * size).status


def assert_taken(server: Running) -> None:
    health = server.ask("GET", "/health")
    assert (health.status, health.json["status"], health.json["writes"]) == (200, "ok", "accepted")
    assert health.json["reason"] is None
    assert server.metrics()["oncelog_writes_refused"] == 0


def assert_refused(server: Running, why: str) -> None:
    health = server.ask("GET", "/health")
    assert (health.status, health.json["status"], health.json["writes"]) == (200, "no_room", "refused")
    assert why in health.json["reason"]
    assert "reads go on" in health.json["reason"]
    assert server.metrics()["oncelog_writes_refused"] == 1


def test_health_and_metrics_tell_that_writes_are_refused_until_there_is_room() -> None:
    with on_a_disk_that_fills_up() as (server, disk):
        assert server.metrics()["oncelog_journal_spares"] == SPARES_WANTED
        disk.full = True
        while not server.engine.commits.disk_full:
            assert write(server) == 204
        assert_taken(server)
        while (status := write(server)) == 204:
            pass
        assert status == 507
        assert_refused(server, f"no room for another segment: make room for {SEGMENT / MIB:g} MiB;")
        assert server.metrics()["oncelog_journal_spares"] == 1
        assert server.ask("GET", PATH).status == 200
        disk.full = False
        server.on_loop(server.engine._tick)
        server.until(lambda: not server.engine.commits.disk_full)
        assert_taken(server)
        assert write(server) == 204


def test_writes_that_are_kept_out_of_the_reserve_are_told_although_it_is_empty() -> None:
    with on_a_disk_that_fills_up() as (server, disk):
        disk.full = True
        for size in (MIB, 64 * KIB, KIB, 1):
            while write(server, size) == 204:
                pass
        removed = 0
        while server.engine.statistics().journal.spares:
            body = b'{"ranges": [[%d, %d]]}' % (removed, removed + 1)
            assert server.ask("POST", "/v1/topics/a/delete-records", body).status == 200, "it may use the reserve"
            removed += 1
        stats = server.engine.statistics().journal
        assert stats.segments * SEGMENT - stats.used_bytes > BATCH_BYTES_MAX, "the last segment is nearly empty"
        assert write(server, 1) == 507
        assert_refused(server, "no room for another segment")


def test_index_without_room_is_told() -> None:
    with running() as server:
        commits = server.engine.commits

        def look() -> str | None:
            commits.held = commits.index_full = True
            try:
                return room.why_refused(server.engine.statistics())
            finally:
                commits.held = commits.index_full = False

        assert "no room for the index, which is" in (server.on_loop(look) or "")
        commits.index_full = True
        assert_taken(server)


def test_server_says_once_that_writes_are_refused_and_once_that_they_are_taken() -> None:
    with on_a_disk_that_fills_up() as (server, disk):
        said: list[str] = []
        watch = room.RoomWatch(server.engine, said.append)
        server.on_loop(watch.look)
        assert said == []
        disk.full = True
        while write(server) == 204:
            pass
        for _ in range(3):
            server.on_loop(watch.look)
        (refused,) = said
        assert refused.startswith(
            "large writes are refused, and small ones soon: the disk has no room for another segment: make room for "
        )
        disk.full = False
        server.until(lambda: server.engine.commits.full is None)
        for _ in range(3):
            server.on_loop(watch.look)
        assert said[1:] == ["there is room again: writes are taken"]


def test_free_room_of_the_disk_is_told_of_a_log_on_one(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        state = os.statvfs(tmp_path)
        free = state.f_bavail * state.f_frsize
        assert abs(server.metrics()["oncelog_disk_free_bytes"] - free) < 0.1 * free
    with running() as server:
        assert "oncelog_disk_free_bytes" not in server.metrics()
    assert room.free_bytes(tmp_path / "gone") is None


def test_every_metric_is_documented_and_no_other(tmp_path: Path) -> None:
    section = DOCS.read_text().partition("\n### Health and metrics\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`oncelog_[^|]+)", section, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"oncelog_\w+", row)}
    with running(tmp_path) as server:
        text = server.ask("GET", "/metrics").body.decode()
    told = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert {name for name in told if name.startswith("oncelog_")} == documented
    assert {"process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"} <= told


def test_server_looks_by_itself_whether_there_is_room() -> None:
    with on_a_disk_that_fills_up() as (server, disk):
        said: list[str] = []
        server.assembly.room._say = said.append
        disk.full = True
        while write(server) == 204:
            pass
        server.until(lambda: bool(said))
        assert said[0].startswith("large writes are refused, and small ones soon: the disk has no room")


# --- writes that wait -----------------------------------------------------------------------------------------------


def test_write_that_waits_for_too_long_is_refused_and_never_written(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    settings = Settings(segment_bytes=8 * limits.MIB, hold_ms=100)
    with running(engine=settings) as server, server.client() as writer:
        assert server.ask("PUT", path, headers={"Content-Type": "text/plain"}).status == 201
        commits = server.engine.commits
        server.on_loop(lambda: setattr(commits, "held", True))
        writer.send(request("POST", path, b"x"))
        answer = writer.answer()
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "overloaded", "1")
        server.on_loop(lambda: setattr(commits, "held", False))
        server.on_loop(server.engine._take_waiting)
        assert server.tail(topic) == 0
        assert writer.ask("POST", path, b"again").next_offset == 1
        assert server.ask("GET", path).body == b"again"


def test_health_and_the_terminal_say_that_writes_wait_and_why(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/v1/stream/{topic}"
    with running() as server, server.client() as writer:
        assert server.ask("PUT", path, headers={"Content-Type": "text/plain"}).status == 201
        commits = server.engine.commits
        said: list[str] = []
        watch = room.RoomWatch(server.engine, said.append)
        monkeypatch.setattr(limits, "HOLD_SAID_MS", 1)
        server.on_loop(watch.look)
        assert said == []
        server.on_loop(lambda: setattr(commits, "held", True))
        writer.send(request("POST", path, b"x"))
        server.until(lambda: commits.waiting_ms() > 1)
        server.on_loop(watch.look)
        server.on_loop(watch.look)
        health = server.ask("GET", "/health")
        assert (health.status, health.json["status"], health.json["writes"]) == (200, "held", "held")
        assert health.json["reason"] == room.why_held(server.on_loop(server.engine.statistics))
        server.on_loop(lambda: setattr(commits, "held", False))
        server.on_loop(server.engine._take_waiting)
        assert writer.answer().status == 204
        server.on_loop(watch.look)
        assert said == [f"writes wait: {health.json['reason']}", "writes are taken again"]
        assert server.ask("GET", "/health").json["status"] == "ok"
