"""Simulated worlds for tests: disk, clock, wire. Nothing else in this package imports it."""
