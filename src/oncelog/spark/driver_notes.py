"""What the processes of one driver must know of each other, in files of the driver's own.

Spark runs the parts of a connector in separate Python processes beside the driver: the source's reader, the planner of
every batch, the committer of every batch. They share no memory, and the planner is not told which run of the query it
plans for. What they do share is the directory that Spark makes for this one SparkContext (`SparkFiles`): it is fresh
for every driver, on its local disk, and removed with it. So a note in it means "this driver", and that is the identity
a fence needs.

Two kinds of notes, both replaced whole: the grant of an application (see `stream_writer`), and the place from which
sources were told to resume it. Losing them is safe: a lost grant costs a new fence, a lost place makes the sink refuse.
A note of a place must not serve another query of the same driver, which reads the same topics from elsewhere: so it
names the topics that were resumed, and a source that begins elsewhere forgets it.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = "oncelog"


class Grant(NamedTuple):
    """The right of this driver to write for an application."""

    application: str
    fence: int


def _folder() -> Path:
    from pyspark import SparkFiles

    root = Path(SparkFiles.getRootDirectory())
    # A session with artifacts of its own gets a folder below; the driver's is the same for all.
    mine = next((path for path in (root, *root.parents) if path.name.startswith("userFiles-")), root)
    folder = mine / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _path(kind: str, *names: str) -> Path:
    return _folder() / f"{kind}-{hashlib.sha256(json.dumps(names).encode()).hexdigest()[:40]}"


def _write(path: Path, content: bytes) -> None:
    number, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(number, "wb") as file:
        file.write(content)
    Path(name).replace(path)


def note_grant(checkpoint: str, grant: Grant) -> None:
    """The grant holds from now on for every batch of this driver's query."""
    _write(_path("fence", grant.application, checkpoint), str(grant.fence).encode())


def noted_grant(application: str, checkpoint: str) -> Grant | None:
    """The grant of this driver, if it has one."""
    try:
        return Grant(application, int(_path("fence", application, checkpoint).read_bytes()))
    except FileNotFoundError:
        return None


def forget_grant(application: str, checkpoint: str) -> None:
    """The run is over: another one of this driver asks anew."""
    with contextlib.suppress(FileNotFoundError):
        _path("fence", application, checkpoint).unlink()


class Start(NamedTuple):
    """What sources of this driver were told when they asked where to resume an application."""

    held: bytes
    """The server's own words; empty if it holds nothing."""
    topics: frozenset[str]
    """Topics that a source begins to read there."""


NO_START: Final = Start(b"", frozenset())


def note_start(application: str, held: bytes, topics: Iterable[str]) -> None:
    """A source begins to read these topics where the server says. Several sources of one query add up."""
    path = _path("start", application)
    before = _read_start(path)
    known = before.topics if before.held == held else frozenset()
    content = {"held": held.decode(), "topics": sorted(known | frozenset(topics))}
    _write(path, json.dumps(content).encode())


def forget_starts(topics: Iterable[str]) -> None:
    """A source begins to read these topics elsewhere: no note about them proves anything for its query any more."""
    named = frozenset(topics)
    for path in _folder().glob("start-*"):
        if _read_start(path).topics & named:
            path.unlink(missing_ok=True)


def noted_start(application: str) -> Start:
    """What the sources were told; nothing if none asked."""
    return _read_start(_path("start", application))


def _read_start(path: Path) -> Start:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return NO_START
    return Start(content["held"].encode(), frozenset(content["topics"]))
