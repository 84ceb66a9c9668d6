"""What an audit finds: counts for each topic, and the verdict. The audit with Spark and the one without give both."""

from typing import Final

import msgspec

FAULTS: Final = ("lost", "doubled", "torn", "out_of_order", "conflicting", "unexpected")
"""What an audit looks for, in the order it is told."""

EXAMPLES_MAX: Final = 5
"""Of each kind of fault, told by name. The counts are whole."""


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
    table_unparsed: int = 0
    """Rows whose value is not JSON of the table's schema: no fault, as their bytes are there."""

    @property
    def sound(self) -> bool:
        """No fault of any kind."""
        return self.faults == 0

    @property
    def judged(self) -> bool:
        """There was a ledger or a table to compare it with."""
        return self.sent > 0 or self.table_rows >= 0

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
    not_judged: list[str] = []
    """Topics that no ledger names and no table holds: nothing is said about them."""

    @property
    def sound(self) -> bool:
        """Nothing lost, nothing doubled, nothing torn, nothing else wrong."""
        return not (
            self.lost or self.doubled or self.torn or self.out_of_order or self.conflicting or self.unexpected
        )  # fmt: skip
