"""A server process: open the log, listen, run until told to stop, stop in order.

Start: a look whether the address is free and whether a new log has room, engine (recovers), then the faces, then the
ready line. Stop (SIGTERM, SIGINT, and SIGHUP of a terminal that closes): the faces take no more and answer what they
accepted, then the engine writes, proves and closes. A second signal ends it at once: that is a crash, and crashes lose
nothing that was confirmed.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

import uvloop

from oncelog import limits
from oncelog.engine.clock import days
from oncelog.engine.engine import Engine
from oncelog.engine.open import end_process, open_engine, open_in_memory
from oncelog.servers.assembly import (
    Assembly,
    CannotListen,
    connections_wanted,
    listener_count,
    try_addresses,
    with_connections,
)
from oncelog.servers.descriptors import allow_files, connections_allowed, files_wanted, keep_standard_ones
from oncelog.servers.face import FaceContext
from oncelog.servers.room import refuse_to_begin
from oncelog.servers.settings import FACE_SETTINGS, ServerSettings
from oncelog.storage.index.child import journal_directory
from oncelog.storage.segment import RESTORE_HINT

CONNECTIONS_FEW: Final = 1_000
"""Below this a server of several machines' clients may come to its bound."""


def run(settings: ServerSettings, ready: Callable[[str], None]) -> int:
    """Serve until a signal. Raises StorageError if the log cannot be opened, CannotListen if a face
    cannot be started at its address."""
    keep_standard_ones()
    return uvloop.run(_serve(settings, ready))


async def _serve(settings: ServerSettings, ready: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    # A terminal that closes stops it, unless it was told to stay (nohup).
    stays = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    for number in (signal.SIGTERM, signal.SIGINT, *(() if stays else (signal.SIGHUP,))):
        loop.add_signal_handler(number, _told_to_stop, loop, number, stop)
    loop.set_exception_handler(_bug)
    wanted, listeners = connections_wanted(settings.faces), listener_count(settings.faces)
    files = allow_files(files_wanted(wanted, listeners))
    connections, backlog = connections_allowed(wanted, files, listeners)
    await try_addresses(settings.faces, loop)
    engine = _opened(settings, loop)
    engine.on_notice = _say
    journal = None if settings.data is None else journal_directory(settings.data)
    told: dict[str, Any] = {"zone": settings.zone, "peers": settings.peer, "bsfg": settings.bsfg}
    context = FaceContext(engine, loop, backlog=backlog, journal=journal, say=_say, **told)
    assembly = Assembly(context, with_connections(settings.faces, connections))
    try:
        await assembly.start()
    except CannotListen:
        await engine.close()
        raise
    statistics = engine.statistics()
    place = "memory" if settings.data is None else str(settings.data)
    ready(f"ready {assembly.ready_words()} durability={statistics.durability} data={place}")
    if statistics.cut_at:
        what = f"a torn group was cut off the journal's end, {statistics.cut_at}"
        _say(f"{what}: a crash leaves one that was not confirmed; if it was, the disk is damaged")
    # Fewer than the default, of which nobody spoke, are told where they are few: `oncelog doctor` tells it everywhere.
    defaults = all(
        chosen.connections_max == FACE_SETTINGS[name]().connections_max for name, chosen in settings.faces.items()
    )
    if connections < wanted and (not defaults or connections < CONNECTIONS_FEW):
        what = f"{connections:,} connections at once and not {wanted:,}: this process may open {files:,} files"
        _say(f"{what}, and the log needs some of them")
    for name in statistics.missing_segments:
        _say(f"{name} is missing from the journal: its records cannot be read, all others can ({RESTORE_HINT})")
    if statistics.clock_skew_ns > limits.CLOCK_STEP_NS_MIN:
        ahead = f"the log is {days(statistics.clock_skew_ns)} ahead of the clock of this machine"
        _say(f"{ahead}: records get the log's time, which goes on at its own pace. Check NTP")
    await stop.wait()
    await assembly.stop()
    await engine.close()
    return 0


def _say(note: str) -> None:
    # Whoever reads our errors may have gone; the server stays.
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.write(f"oncelog: {note}\n")


def _opened(settings: ServerSettings, loop: asyncio.AbstractEventLoop) -> Engine:
    if settings.data is None:
        return open_in_memory(loop, settings=settings.engine)
    refuse_to_begin(settings.data, settings.engine.segment_bytes)
    return open_engine(settings.data, loop, settings=settings.engine)


def _bug(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception that nobody caught. A socket may fail as it likes; anything else is a bug, and what is in memory may
    be half changed: nobody is told anything from it."""
    error = context.get("exception")
    if isinstance(error, OSError):
        return
    if error is None:
        loop.default_exception_handler(context)
        return
    end_process(error)


def _told_to_stop(loop: asyncio.AbstractEventLoop, number: int, stop: asyncio.Event) -> None:
    # The next one has its usual effect.
    loop.remove_signal_handler(number)
    stop.set()
