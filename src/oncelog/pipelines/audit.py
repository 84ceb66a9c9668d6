"""`audit`: what the producers say they sent, what is in the log, what is in the table. The three must agree.

The comparison is Spark's (`audit_queries`); this module asks the questions in turn and adds the answers up.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

IDENTITY: Final = "get_json_object(cast(value AS string), '$.id')"
"""Where a record carries its identity: the field `id` of its JSON value."""


class TopicAudit(msgspec.Struct):
    """One topic. The counts of faults are 0 where there was nothing to compare with."""

    topic: str
    records: int = 0
    """In the log."""
    sent: int = 0
    """Different records in the ledgers."""
    confirmed: int = 0
    lost: int = 0
    """Confirmed and not in the log, or not at the offset that the server told."""
    doubled: int = 0
    """More than once in the log: the copies too many."""
    torn: int = 0
    """Commits of which the log has some records and not others; counted at each topic they touch."""
    out_of_order: int = 0
    """Records that stand behind one that their writer sent later."""
    conflicting: int = 0
    """Identities with two contents, or with another one than was sent."""
    unexpected: int = 0
    """In the log, and in no ledger; or refused, and there all the same."""
    table_rows: int = -1
    """-1: the topic is not in the table, or no table was given."""
    table_lost: int = 0
    table_doubled: int = 0
    table_conflicting: int = 0
    """Rows whose columns are not what the record says."""
    table_unexpected: int = 0
    """Rows of records that the log does not have."""

    @property
    def sound(self) -> bool:
        """No fault of any kind."""
        return self.faults == 0

    @property
    def faults(self) -> int:
        """All of them together."""
        in_log = self.lost + self.doubled + self.torn + self.out_of_order + self.conflicting + self.unexpected
        return in_log + self.table_lost + self.table_doubled + self.table_conflicting + self.table_unexpected


class AuditResult(msgspec.Struct):
    """The verdict."""

    topics: list[TopicAudit]
    lost: int
    """In the log and in the table together; so are the others."""
    doubled: int
    torn: int
    """Commits, each counted once."""
    out_of_order: int
    conflicting: int
    unexpected: int
    records: int
    examples: list[str] = []
    """Some of the faults, in words."""
    duration_s: float = 0.0
    report: str = ""
    """Where the page was written."""

    @property
    def sound(self) -> bool:
        """Nothing lost, nothing doubled, nothing torn, nothing else wrong."""
        return not (
            self.lost or self.doubled or self.torn or self.out_of_order or self.conflicting or self.unexpected
        )  # fmt: skip


def audit(
    *,
    url: str,
    topics: Sequence[str],
    table: str | Mapping[str, str] | None = None,
    ledgers: Sequence[Path] = (),
    report: Path | None = None,
    identity: str | Mapping[str, str] = IDENTITY,
    events: Path | None = None,
    batches: Mapping[str, Any] | None = None,
    title: str = "oncelog audit",
    seed: str = "",
    command: str = "",
    spark: Any = None,
    master: str = "local[*]",
    progress: Callable[[str], None] | None = None,
) -> AuditResult:
    """Compares log, table and ledgers; with `report` also writes a page.

    `table` is a landed table, or one for each topic. `ledgers` are files of `Ledger`; a topic that no ledger names is
    only compared with the table. `identity` is an SQL expression over key, value and headers that gives a record's id,
    one for all or one per topic. `events` is a file of JSON lines `{"time_ms", "kind", "label"}`: kills and the like,
    marked in the report. `batches` are results of pipelines by name (`PipelineResult`), drawn in the report. `seed` and
    `command` go into its foot. Without a session one is started and stopped again. `progress` is told each step.
    """
    raise NotImplementedError
