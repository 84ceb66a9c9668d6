"""What all connections of this face share: the log, the settings, the groups, and who uses which connection."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from oncelog.core.txn import DEFAULT_TIMEOUTS, TxnTimeouts
from oncelog.protocols.kafka.groups.coordinator import Coordinator
from oncelog.protocols.kafka.log import Log
from oncelog.protocols.kafka.replaced import Connections
from oncelog.protocols.kafka.wire import WireError

NODE_ID: Final = 1
"""There is one broker. Clients take -1 for none, and some take 0 for not set."""

LEADER_EPOCH: Final = 0
"""The leader never changes."""


class BrokerSettings(msgspec.Struct, frozen=True):
    """How this broker was started."""

    cluster_id: str = "oncelog"
    auto_create: bool = True
    default_partitions: int = 1
    transactions: bool = True
    """False: every call to the transaction coordinator is answered 15."""
    txn_partitions_max: int = 10_000
    transactional_ids: tuple[str, ...] = ("*",)
    """Patterns of the transactional ids that may be used."""
    reject_timeout: bool = False
    """Kafka's error 50 for a timeout out of range, instead of clamping."""
    timeouts: TxnTimeouts = DEFAULT_TIMEOUTS


class Broker:
    """One per server."""

    def __init__(
        self, log: Log, settings: BrokerSettings, on_malformed: Callable[[WireError], None] = lambda _error: None
    ) -> None:
        self.log = log
        self.settings = settings
        self.on_malformed = on_malformed
        self.connections = Connections()
        self.groups = Coordinator(log)

    def now_ms(self) -> int:
        """The time that the server gives to records."""
        return self.log.now_ns() // 1_000_000

    def may_use(self, transactional_id: str) -> bool:
        """Whether clients may use this transactional id."""
        return any(fnmatchcase(transactional_id, pattern) for pattern in self.settings.transactional_ids)
