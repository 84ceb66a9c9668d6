"""The NATS face as bytes and rules: control lines, subjects, JetStream's API, atomic batches, deliveries. No I/O."""
