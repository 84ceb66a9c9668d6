"""oncelog: a log that every write reaches exactly once."""

__version__ = "0.1.0"

if not __debug__:
    raise ImportError("oncelog relies on its assertions: do not run python with -O")
