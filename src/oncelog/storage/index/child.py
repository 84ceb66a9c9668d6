"""The index builder as a process of its own: `python -m oncelog.storage.index.child DIRECTORY [MIRROR]`.

A process and not a thread: beside a busy loop a thread that writes LMDB gets the interpreter too seldom (20,000 puts
took 6 s, against 0.3 s here). It is polite (`NICE`), and the only writer of index files.

MIRROR is the descriptor of the journal's newest bytes (`storage/mirror.py`), if the server keeps them: what is there is
not read from the disk.

Lines on stdin:   advance <group>                                   index up to here; the largest one asked for counts
Lines on stdout:  done <group> <entry number> <journal bytes>       after every commit
                  full <reason>                                     no room; it tries again every second

It ends with code 0 when stdin ends, also in the middle of a merge: what is not committed is built again. Otherwise it
says why on stderr and ends with another code.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from oncelog.errors import Corruption, DiskFull, OncelogError
from oncelog.limits import MERGE_LAG_BYTES_MAX
from oncelog.storage.allocator import give_back, keep_large_blocks
from oncelog.storage.disk import PosixDisk
from oncelog.storage.index.builder import Builder
from oncelog.storage.index.interface import Died, Done, Full, Reply
from oncelog.storage.index.lmdb_writer import LmdbWriter, take_lock
from oncelog.storage.journal import Journal
from oncelog.storage.journal_reader import JournalReader
from oncelog.storage.mirror import Mirror

NICE: Final = 10
"""Confirming writes comes first; the index may be seconds behind."""

RETRY_S: Final = 1.0
STOP_WAIT_S: Final = 5.0
"""How long `stop` waits for the commit under way. After a kill the lock keeps the next builder waiting instead."""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_DAMAGED: Final = 4
"""As the command line's: damage was found."""

_READ_BYTES: Final = 1 << 16
_STDIN, _STDOUT = 0, 1


def journal_directory(directory: Path) -> Path:
    return directory / "journal"


def index_directory(directory: Path) -> Path:
    return directory / "index"


def wait_for_builder(directory: Path) -> None:
    """Return when no builder works on this log: one whose server was killed may still be finishing a commit."""
    os.close(take_lock(index_directory(directory), wait=True))


# --- the child's side --------------------------------------------------------------------------------------------


class _Ended(Exception):
    """The server is gone, or wants us gone."""


class _FreshReader:
    """A `JournalReader` per use: a reader that is kept would keep dropped segments open, and their space taken."""

    def __init__(self, disk: PosixDisk, mirror: Mirror | None) -> None:
        self._disk = disk
        self._mirror = mirror

    def groups(self, after: int | None, until: int) -> Iterator[tuple[int, bytes]]:
        return JournalReader(self._disk, self._mirror).groups(after, until)


class _Requests:
    """The largest group that stdin asked for."""

    def __init__(self) -> None:
        self._pending = b""
        self.group = -1

    def is_pressed(self, group: int) -> bool:
        """Whether so much was asked for behind `group` that merging had better wait."""
        self.wait(0)
        return Journal.bytes_between(group, self.group) > MERGE_LAG_BYTES_MAX

    def wait(self, timeout_s: float | None) -> bool:
        """Take what is there, waiting for the first byte at most `timeout_s`; False if nothing came. Raises `_Ended` at
        the end of stdin."""
        came = False
        while select.select([_STDIN], [], [], timeout_s)[0]:
            came = True
            data = os.read(_STDIN, _READ_BYTES)
            if not data:
                raise _Ended
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                word, _, number = line.partition(b" ")
                if word != b"advance" or not number.isdigit():
                    raise ValueError(f"not a request: {line!r}")
                self.group = max(self.group, int(number))
            timeout_s = 0
        return came


def _say(line: str) -> None:
    data = f"{line}\n".encode()
    try:
        while data:
            data = data[os.write(_STDOUT, data) :]
    except BrokenPipeError:
        raise _Ended from None


def _report(done: Done) -> None:
    _say(f"done {done.group} {done.entry_number} {done.journal_bytes}")


def serve(directory: Path, mirror: Mirror | None = None) -> None:
    """Build as asked until stdin ends."""
    requests = _Requests()
    disk = PosixDisk(journal_directory(directory), read_only=True)
    writer = LmdbWriter(index_directory(directory), wait=True)
    try:
        builder = Builder(_FreshReader(disk, mirror), writer.index(), writer, is_pressed=requests.is_pressed)
        answered = -1
        full = merging = False
        while True:
            is_behind = requests.group > answered
            if not is_behind and not merging:
                give_back()  # what the last commits took: it may be long until the next
            came = requests.wait(RETRY_S if full else 0 if is_behind or merging else None)
            try:
                if full or requests.group > answered:
                    full, merging = False, True
                    until = requests.group  # more may be asked for while it works
                    builder.advance(until, _report)
                    answered = until
                elif came:
                    # Asked again for what is there already: whoever asks waits for an answer.
                    builder.advance(answered, _report)
                else:
                    merging = builder.maintain()
            except DiskFull as error:
                full, merging = True, False
                builder.reset()
                _say(f"full {error}")
    except _Ended:
        return
    finally:
        writer.close()
        disk.close()


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or not all(map(str.isdecimal, arguments[1:])):
        sys.stderr.write("usage: python -m oncelog.storage.index.child DIRECTORY [MIRROR]\n")
        return EXIT_USAGE
    os.nice(NICE)
    keep_large_blocks()
    try:
        mirror = Mirror(int(arguments[1]), read_only=True) if len(arguments) > 1 else None
        serve(Path(arguments[0]), mirror)
    except (OncelogError, OSError, ValueError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return EXIT_DAMAGED if isinstance(error, Corruption) else EXIT_FAILED
    except KeyboardInterrupt:
        # A terminal's Ctrl-C reaches the whole process group; the server ends us in its own order.
        return EXIT_FAILED
    return 0


# --- the server's side ---------------------------------------------------------------------------------------------


class ChildBuilder:
    """Starts the child and talks to it. Implements `IndexBuilder`; nothing here waits but `stop`."""

    def __init__(self, directory: Path, mirror: Mirror | None = None) -> None:
        self._directory = directory
        self._mirror = mirror
        self._stopped = False
        self._start()

    def _start(self) -> None:
        shared = () if self._mirror is None else (self._mirror.fileno(),)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oncelog.storage.index.child", os.fspath(self._directory), *map(str, shared)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A Ctrl-C at the terminal is for the server, which ends its builder in its own order.
            start_new_session=True,
            pass_fds=shared,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._pending = b""
        self._dead = False

    def restart(self) -> None:
        assert self._dead, "it was heard to have died"
        if not self._stopped:
            self._close_pipes()
            self._start()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def request(self, group: int) -> None:
        if self._dead:
            return
        try:
            os.write(self._stdin, b"advance %d\n" % group)
        except BrokenPipeError:
            # It died; `replies` will say so.
            return

    def fileno(self) -> int:
        return self._stdout

    def replies(self) -> list[Reply]:
        replies: list[Reply] = []
        while not self._dead:
            try:
                data = os.read(self._stdout, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                self._dead = True
                replies.append(self._death())
                break
            *lines, self._pending = (self._pending + data).split(b"\n")
            replies.extend(map(_parsed, lines))
        return replies

    def stop(self) -> None:
        """End of stdin ends the child. Repeating it does nothing."""
        if self._stopped:
            return
        self._stopped = self._dead = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _death(self) -> Died:
        """Its stdout ended, so it is gone or going."""
        code = self._process.wait()
        assert self._process.stderr is not None
        lines = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else ("" if code >= 0 else f"killed by signal {-code}")
        return Died(reason or "it said nothing", code)


def _parsed(line: bytes) -> Reply:
    word, _, rest = line.partition(b" ")
    if word == b"full":
        return Full(rest.decode(errors="replace"))
    group, entry_number, journal_bytes = map(int, rest.split())
    assert word == b"done", "the child is our own code"
    return Done(group, entry_number, journal_bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
