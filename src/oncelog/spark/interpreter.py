"""Which Python the workers run, chosen where users of Spark choose it; ours only where nobody chose.

    spark.pyspark.python of the session, then PYSPARK_PYTHON, then spark.pyspark.python of spark-defaults.conf

Spark has one name for the interpreter of a data source, and runs it on the driver's machine too, to plan and to commit.
An environment that is sent along (`spark.archives`) is unpacked on the workers only. So where the choice is a relative
path that leads nowhere here, the driver's Java is started in a folder of its own, in which the same path leads to the
interpreter of this process.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

OPTION: Final = "spark.pyspark.python"
VARIABLE: Final = "PYSPARK_PYTHON"
DEFAULTS_FILE: Final = "spark-defaults.conf"


class Interpreter(NamedTuple):
    """What Spark calls."""

    name: str
    chosen_by: str
    """An option, a variable or a file; empty if nobody chose."""

    @property
    def is_absent(self) -> bool:
        """Whether it is an absolute path at which this machine has no program."""
        return os.path.isabs(self.name) and not os.access(self.name, os.X_OK)

    @property
    def is_sent_along(self) -> bool:
        """Whether it is a relative path that only the workers have."""
        return "/" in self.name and not os.path.isabs(self.name) and not Path(self.name).exists()


def chosen(settings: Mapping[str, str]) -> Interpreter:
    """The interpreter for a session with these settings."""
    if settings.get(OPTION):
        return Interpreter(settings[OPTION], OPTION)
    if given := os.environ.get(VARIABLE):
        return Interpreter(given, VARIABLE)
    folder = os.environ.get("SPARK_CONF_DIR")
    home = os.environ.get("SPARK_HOME")
    file = Path(folder) if folder else Path(home) / "conf" if home else None
    if file is not None and (named := _default_of(file / DEFAULTS_FILE)):
        return Interpreter(named, str(file / DEFAULTS_FILE))
    return Interpreter(sys.executable, "")


def _default_of(file: Path) -> str:
    """What the file says of the option; empty if it does not."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if name == OPTION:
            return value.strip()
    return ""


def stand_in(interpreter: Interpreter, folder: Path) -> None:
    """Lets the relative path lead to this process's interpreter, in the folder that the driver's Java starts in."""
    program = folder / interpreter.name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
