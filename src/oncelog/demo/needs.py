"""What the demo needs beside the package, told before anything starts."""

import importlib.util
from typing import Final

PACKAGES: Final = ("pyspark", "pyarrow", "deltalake")
CLIENTS: Final = {"confluent_kafka": "confluent-kafka", "nats": "nats-py"}
"""Clients of other protocols that the demo writes with: what is imported, and the package that has it."""


def missing_for_faces() -> str:
    """What the producers lack and how to get it, in one sentence; empty if everything is there."""
    absent = [package for module, package in CLIENTS.items() if importlib.util.find_spec(module) is None]
    if not absent:
        return ""
    return (
        f"the demo writes with the clients of other protocols, and {', '.join(absent)} is not installed: run "
        "`make run`, which installs what it needs, or pip install 'oncelog[demo]'"
    )


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
