"""The list of faces: one line each. To add a face, add its line here, a folder `protocols/<face>` with what its bytes
mean and a folder `servers/<face>` with its settings and its server; see "How to add a face" in ARCHITECTURE.md.

This module imports nothing of ours: the command line reads it for its flags, and a verb that starts no server shall not
load one. So a face is named here as text, `module:name`, and imported when a server starts.
"""

import importlib
from typing import Any, Final, NamedTuple


class FaceKind(NamedTuple):
    """One kind of face that a server can have."""

    name: str
    """In the settings file, on the command line (`--<name>`, `--no-<name>`), in the ready line and in metrics."""
    address: str
    """Where it listens if nobody says otherwise: the default in its settings class."""
    settings: str
    """Its settings class, a `FaceSettings`."""
    server: str
    """What makes it: called with a `FaceContext` and the settings, returns a `Face`."""


FACES: Final[list[FaceKind]] = [
    FaceKind(
        "http", "127.0.0.1:4437", "oncelog.servers.http.settings:HttpSettings", "oncelog.servers.http.server:HttpServer"
    ),
    FaceKind(
        "kafka",
        "127.0.0.1:9092",
        "oncelog.servers.kafka.settings:KafkaSettings",
        "oncelog.servers.kafka.server:KafkaServer",
    ),
    FaceKind(
        "nats", "127.0.0.1:4222", "oncelog.servers.nats.settings:NatsSettings", "oncelog.servers.nats.server:NatsServer"
    ),
]
"""In the order in which they start."""

MOUNTS: Final[list[str]] = ["oncelog.servers.bsfg.mount:make_mount"]
"""What sits on HTTP's listener without being part of its face: `module:name` of a function that is called with a
`FaceContext` and the `Counts` of HTTP and returns a `Mount` (`servers/mount.py`)."""


def resolved(name: str) -> Any:
    """What `module:name` stands for."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
