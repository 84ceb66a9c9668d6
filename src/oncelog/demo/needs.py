"""What the demo needs beside the package, told before anything starts."""

import importlib.util
from typing import Final

PACKAGES: Final = ("pyspark", "pyarrow", "deltalake")


def missing() -> str:
    """What Spark lacks and how to get it, in one sentence; empty if everything is there."""
    absent = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if absent:
        return (
            f"the demo runs its pipelines on Spark, and {', '.join(absent)} is not installed: say `make run`, which "
            "installs what it needs, or pip install 'oncelog[spark]', or leave the pipelines out with --no-spark"
        )
    from oncelog.spark import java

    try:
        java.prepare()
    except java.JavaMissing as error:
        return str(error)
    return ""
