"""The meaning of the log: rules that take values and return values.

Owns streams, producers, message ids, atomic commits, txns, stages, cursors and the record-batch codec. Nothing in here
reads a clock, a file, a socket or a random number, and nothing but `apply` changes state: the same entries in the same
order give the same state, which is what recovery, the index and every promise rest on.
"""
