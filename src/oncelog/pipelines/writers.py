"""What whoever ran the producers tells of them, for the report: their ledgers know neither retries nor a network.

A module of its own, as it needs no Spark.
"""

import msgspec


class Writers(msgspec.Struct, frozen=True):
    """Who wrote through one face, and what they met."""

    face: str
    """As the ledgers name it."""
    label: str
    """As people do."""
    retried: int
    """Requests that were sent again; -1: their client does so by itself and does not tell."""
    duplicates: int
    """Answers that said: it is there already."""
    killed: int


class Run(msgspec.Struct, frozen=True):
    """The run that is audited, as told by whoever ran it."""

    duration_s: float
    """From its beginning to the audit."""
    writers: list[Writers]
    """In the order in which they are to be shown."""
    dropped: int
    """Answers that the network did not deliver."""
    cut: int
    """Connections."""
