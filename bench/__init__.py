"""Benchmarks: speed is measured here, beside a peer in the same run, and never asserted by a test."""
