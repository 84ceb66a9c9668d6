"""Sockets, deadlines, start and stop order. No rules: what a write means is decided in `core`."""
