"""The Kafka face: its settings, its sockets, and the engine as the protocol sees it."""
