"""A disk that may do, at a crash, everything a real one may. Deterministic: all chance comes from the caller.

The model, per file: every 512-byte sector written since the last fdatasync may survive a crash in any of the versions
written, or not at all, each sector on its own; a grown file may have kept its old size. A sector is old or new, never
a mixture. Per directory: every create, rename and remove since the last sync may be lost on its own; one that no
longer finds its file is void. `fdatasync` does not make a name durable.

A failed fdatasync behaves like Linux's page cache: the sectors are clean from then on, reads still see them, a
later fdatasync that succeeds does not write them, and at a crash they may be gone.

Faults are injected by call number: `fail_at(n, kind)` hits the n-th call of any method. A call that crashes was under
way: its own effect is among what may or may not survive.
"""

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog.storage.disk import Buffer

SECTOR_BYTES: Final = 512
CHANGING_CALLS: Final = frozenset({"pwritev", "fdatasync", "create", "rename", "remove", "sync_directory"})
"""Calls between which a crash can make a difference."""

Choose = Callable[[int], int]
"""Given the number of possible survivals of one thing, 0 being "lost", returns which one happened."""


class SimCrash(Exception):
    """The simulated machine lost its power. Take `crash()` of the disk to see what is left."""


class Fault(Enum):
    SHORT_WRITE = auto()
    """pwritev writes only a part, and says so."""
    NO_SPACE = auto()
    """pwritev or create: ENOSPC, nothing written."""
    IO_ERROR = auto()
    """Any call: EIO. A pwritev has written its first half."""
    SYNC_FAILS = auto()
    """fdatasync or sync_directory: EIO. The sectors of the file count as clean from then on."""
    CRASH = auto()


_APPLIES: Final = {
    Fault.SHORT_WRITE: frozenset({"pwritev"}),
    Fault.NO_SPACE: frozenset({"pwritev", "create"}),
    Fault.IO_ERROR: CHANGING_CALLS - {"fdatasync", "sync_directory"} | {"pread", "names", "open"},
    Fault.SYNC_FAILS: frozenset({"fdatasync", "sync_directory"}),
    Fault.CRASH: CHANGING_CALLS | {"pread", "names", "open"},
}


def lose_all(_: int) -> int:
    """Nothing that was not synced survives."""
    return 0


def keep_all(options: int) -> int:
    """Everything survives, as after a mere process crash."""
    return options - 1


class SimFile:
    """One file: what reads see, what is on the device, and what may get there by itself."""

    def __init__(self, disk: "SimDisk", content: bytes = b"") -> None:
        self._disk = disk
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.dirty: dict[int, list[bytes]] = {}
        """Sector → versions written since the last sync, oldest first."""
        self.dropped: dict[int, list[bytes]] = {}
        """The same, of sectors whose sync failed: no later sync writes them."""

    def pwritev(self, buffers: Sequence[Buffer], position: int, /) -> int:
        data = b"".join(buffers)
        fault = self._disk._enter("pwritev", data_bytes=max(0, position + len(data) - len(self.content)))
        if fault is Fault.NO_SPACE:
            raise OSError(errno.ENOSPC, "no space left on device")
        if fault in (Fault.SHORT_WRITE, Fault.IO_ERROR):
            data = data[: (len(data) + 1) // 2]
        self._store(data, position)
        if fault is Fault.IO_ERROR:
            raise OSError(errno.EIO, "input/output error")
        self._disk._crash_if(fault)
        return len(data)

    def _store(self, data: bytes, position: int) -> None:
        end = position + len(data)
        if len(self.content) < end:
            self.content.extend(bytes(end - len(self.content)))
        self.content[position:end] = data
        for sector in range(position // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            version = _sector(self.content, sector)
            unchanged = end <= len(self.durable) and version == _sector(self.durable, sector)
            if unchanged and sector not in self.dirty and sector not in self.dropped:
                continue  # lost or kept, the device holds the same bytes
            self.dirty.setdefault(sector, []).append(version)

    def pread(self, length: int, position: int, /) -> bytes:
        self._disk._crash_if(self._disk._enter_or_fail("pread"))
        return bytes(self.content[position : position + length])

    def fdatasync(self) -> None:
        fault = self._disk._enter("fdatasync")
        self._disk._crash_if(fault)
        if fault is Fault.SYNC_FAILS:
            for sector, versions in self.dirty.items():
                self.dropped.setdefault(sector, []).extend(versions)
            self.dirty.clear()
            raise OSError(errno.EIO, "input/output error")
        if self.dirty:
            self.durable.extend(bytes(max(0, len(self.content) - len(self.durable))))
        for sector in self.dirty:
            self._harden(self.durable, sector, _sector(self.content, sector))
            self.dropped.pop(sector, None)
        self.dirty.clear()

    @staticmethod
    def _harden(target: bytearray, sector: int, version: bytes) -> None:
        first = sector * SECTOR_BYTES
        room = len(target) - first
        if room > 0:
            target[first : first + min(room, SECTOR_BYTES)] = version[:room]

    def survivor(self, choose: Choose) -> bytes:
        """One possible content after a crash. Things with one possible survival ask nothing."""
        survivor = bytearray(self.durable)
        if len(self.content) > len(survivor) and choose(2):
            survivor.extend(bytes(len(self.content) - len(survivor)))
        for sector in sorted(self.dirty.keys() | self.dropped.keys()):
            options = [_sector(survivor, sector)]
            for version in self.dropped.get(sector, []) + self.dirty.get(sector, []):
                if version not in options:
                    options.append(version)
            if len(options) > 1:
                self._harden(survivor, sector, options[choose(len(options))])
        return bytes(survivor)


def _sector(content: bytearray, sector: int) -> bytes:
    return bytes(content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")


class _Change(NamedTuple):
    """One directory operation: create (old is None), rename, or remove (new is None)."""

    old: str | None
    new: str | None
    file: SimFile


class SimDisk:
    """A `Disk` that counts calls, fails on demand and can be crashed."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.history: list[str] = []
        """Every call so far; the n-th call is `history[n - 1]`."""
        self._names: dict[str, SimFile] = {}
        self._durable_names: dict[str, SimFile] = {}
        self._changes: list[_Change] = []
        self._faults: dict[int, Fault] = {}
        self._crashed = False

    @property
    def calls(self) -> int:
        return len(self.history)

    def fail_at(self, call: int, kind: Fault) -> None:
        """Inject `kind` at the call with this number, counted from 1. Void if that call cannot fail so."""
        self._faults[call] = kind

    def flip(self, name: str, position: int, mask: int) -> None:
        """Damage one byte, in the cache and on the device."""
        file = self._names[name]
        file.content[position] ^= mask
        if position < len(file.durable):
            file.durable[position] ^= mask

    def truncate(self, name: str, size: int) -> None:
        """Damage: cut a file short, in the cache and on the device."""
        file = self._names[name]
        del file.content[size:]
        del file.durable[size:]

    def crash(self, choose: Choose = lose_all) -> "SimDisk":
        """A new disk holding one state that a power cut may leave. This one is left as it is, for other choices."""
        names = dict(self._durable_names)
        for change in self._changes:
            _replay(names, change, choose)
        after = SimDisk(capacity_bytes=self.capacity_bytes)
        for name, file in sorted(names.items()):
            after._names[name] = SimFile(after, file.survivor(choose))
        after._durable_names = dict(after._names)
        return after

    # --- the Disk protocol -----------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        self._crash_if(self._enter_or_fail("names"))
        return sorted(self._names)

    def open(self, name: str, *, create: bool = False) -> SimFile:
        if not create:
            self._crash_if(self._enter_or_fail("open"))
            return self._find(name)
        fault = self._enter_or_fail("create")
        if fault is Fault.NO_SPACE:
            raise OSError(errno.ENOSPC, "no space left on device")
        if name in self._names:
            raise FileExistsError(errno.EEXIST, "file exists", name)
        file = self._names[name] = SimFile(self)
        self._changes.append(_Change(None, name, file))
        self._crash_if(fault)
        return file

    def rename(self, old: str, new: str) -> None:
        fault = self._enter_or_fail("rename")
        file = self._find(old)
        assert new not in self._names, "storage never renames over a file"
        self._names[new] = self._names.pop(old)
        self._changes.append(_Change(old, new, file))
        self._crash_if(fault)

    def remove(self, name: str) -> None:
        fault = self._enter_or_fail("remove")
        file = self._find(name)
        del self._names[name]
        self._changes.append(_Change(name, None, file))
        self._crash_if(fault)

    def sync_directory(self) -> None:
        fault = self._enter("sync_directory")
        self._crash_if(fault)
        if fault is Fault.SYNC_FAILS:
            raise OSError(errno.EIO, "input/output error")
        self._durable_names = dict(self._names)
        self._changes.clear()

    def has_room(self, _size: int, /) -> bool:
        """It does not know: a write that finds no room is what is simulated."""
        return True

    def close(self) -> None:
        return None

    # --- faults ----------------------------------------------------------------------------------------------------

    def _enter(self, call: str, data_bytes: int = 0) -> Fault | None:
        """Count a call. Returns the fault that hits it."""
        if self._crashed:
            raise SimCrash("the machine is off")
        self.history.append(call)
        fault = self._faults.get(self.calls)
        if fault is not None and call in _APPLIES[fault]:
            return fault
        if data_bytes and self.capacity_bytes is not None:
            used = sum(len(file.content) for file in self._names.values())
            if used + data_bytes > self.capacity_bytes:
                return Fault.NO_SPACE
        return None

    def _enter_or_fail(self, call: str) -> Fault | None:
        fault = self._enter(call)
        if fault is Fault.IO_ERROR:
            raise OSError(errno.EIO, "input/output error")
        return fault

    def _crash_if(self, fault: Fault | None) -> None:
        if fault is Fault.CRASH:
            self._crashed = True
            raise SimCrash(f"power lost at call {self.calls}, {self.history[-1]}")

    def _find(self, name: str) -> SimFile:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self._names[name]


def _replay(names: dict[str, SimFile], change: _Change, choose: Choose) -> None:
    """Apply a directory operation that may have been lost. Without its file it is void, and asks nothing."""
    if change.old is not None and names.get(change.old) is not change.file:
        return
    if choose(2):
        if change.old is not None:
            del names[change.old]
        if change.new is not None:
            names[change.new] = change.file


class _Script:
    """Answers from a list, then 0, and records how many options each question had."""

    def __init__(self, answers: Sequence[int]) -> None:
        self._answers = iter(answers)
        self.options: list[int] = []
        self.answers: list[int] = []

    def __call__(self, options: int) -> int:
        answer = next(self._answers, 0)
        self.options.append(options)
        self.answers.append(answer)
        return answer


def crash_states(disk: SimDisk, *, states_max: int = 256, samples: int = 32, seed: int = 0) -> Iterator[SimDisk]:
    """Disks that a power cut may leave: all of them if they are at most `states_max`, else `samples` by chance.

    The sample always holds the two extremes, everything lost and everything kept.
    """
    script = _Script(())
    after = disk.crash(script)
    every: list[SimDisk] = []
    while len(every) < states_max:
        every.append(after)
        # The next script: raise the last answer that can still be raised, drop what follows it.
        answers = list(script.answers)
        while answers and answers[-1] + 1 == script.options[len(answers) - 1]:
            answers.pop()
        if not answers:
            yield from every
            return
        answers[-1] += 1
        script = _Script(answers)
        after = disk.crash(script)
    every.clear()
    chance = random.Random(seed)
    yield disk.crash(lose_all)
    yield disk.crash(keep_all)
    for _ in range(samples - 2):
        yield disk.crash(chance.randrange)
