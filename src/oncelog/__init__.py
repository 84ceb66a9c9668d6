"""oncelog: a log that every write reaches exactly once."""

import os

__version__ = "0.1.0"

if not __debug__:
    raise ImportError("oncelog relies on its assertions: do not run python with -O")

if os.environ.get("ONCELOG_PURE") == "1":
    # Every module from its source, also where it was compiled: to debug it, or to put a bug in and see it found.
    import sys
    from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

    def _from_source(path: str) -> FileFinder:
        if not path.startswith(__path__[0]):
            raise ImportError
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, _from_source)
