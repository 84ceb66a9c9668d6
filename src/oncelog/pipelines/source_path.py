"""Which formats are files, and whether a path that Spark is to read is there, as far as Spark is not needed for it.

Needs neither Spark nor Java: a pipeline refuses a wrong path before they start.
"""

import os
import re
from pathlib import Path
from typing import Final

FILE_FORMATS: Final = ("text", "json", "csv", "parquet", "orc", "xml", "avro", "binaryfile")
"""Formats that are files: Spark tells for each row which one it is from."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HADOOP: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
"""Where one of them is set, a path without a scheme need not be one of this machine."""

_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")


def is_missing(source: str, format: str) -> bool:  # noqa: A002  (as Spark calls it)
    """The path is one of this machine, and nothing is there. An address of another file system, and a pattern, which
    may match later, are for Spark to judge; so is every path where Hadoop is set up."""
    if format.lower() not in FILE_FORMATS or _SCHEME.match(source) or _PATTERN.search(source):
        return False
    if any(os.environ.get(name) for name in _HADOOP):
        return False
    return not Path(source).exists()
