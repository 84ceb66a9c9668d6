"""The NATS face's sockets, and its streams and consumers on the engine."""
