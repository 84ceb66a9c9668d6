"""The server's side of the BSFG boundary: calls of `protocols.bsfg` carried out by the engine, on HTTP's listener."""
