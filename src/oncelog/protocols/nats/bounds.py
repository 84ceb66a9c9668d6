"""What this server tells its clients of itself."""

from typing import Final

API_LEVEL: Final = 3
"""JetStream's API level: 3 has `Nats-Batch-Commit: eob`."""

VERSION: Final = "2.14.0"
"""The server version that clients compare with: what they may use of JetStream."""
