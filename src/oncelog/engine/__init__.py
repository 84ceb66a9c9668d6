"""The engine: the single writer, the two doors (read view and gate), readers and timers. Parses no protocol's bytes."""
