"""The Kafka face without I/O: bytes of Kafka's protocol to core commands, and outcomes to bytes."""
