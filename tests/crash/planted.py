"""What is put into a server or an engine so that kills find what they look for: scripts that run at its start."""

SLOW_WRITES = """
import threading
from oncelog.storage.disk import PosixFile
write = PosixFile.pwritev
disk = threading.Event()
def late(file, buffers, position):
    disk.wait(0.03)
    return write(file, buffers, position)
PosixFile.pwritev = late
"""
"""Kills then find a group that was sealed and not yet written, which on a fast disk they seldom do."""
