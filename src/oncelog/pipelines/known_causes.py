"""Failures of Spark that a person meets on a cluster, in one sentence each, with what to do. Every other one keeps
Spark's own words. The whole account, Java's stack included, is for a file (`account_of`)."""

import re
import traceback
from typing import Final, NamedTuple


class _Known(NamedTuple):
    pattern: re.Pattern[str]
    sentence: str
    """With the groups of the pattern."""


_KNOWN: Final = (
    _Known(
        re.compile(r"ModuleNotFoundError: No module named '([^']+)'"),
        "the Python of the workers lacks the package {0!r}. Install it for the interpreter that the workers run "
        "(--conf spark.pyspark.python=PATH names another one), or send an environment along (--archives)",
    ),
    _Known(
        re.compile(r'Cannot run program "([^"]+)"'),
        "a machine of the cluster has no interpreter {0}. Name one that every worker and the driver have (--conf "
        "spark.pyspark.python=PATH), or send an environment along (--archives)",
    ),
    _Known(
        re.compile(r"PYTHON_VERSION_MISMATCH\D*(\d+[, .]+\d+)\D+(\d+[, .]+\d+)"),
        "workers and driver run different versions of Python ({0} and {1}). Name an interpreter of the driver's "
        "version (--conf spark.pyspark.python=PATH)",
    ),
    _Known(
        re.compile(r"Master removed our application|Cannot call methods on a stopped SparkContext"),
        "Spark's master has ended the application because its executors did not start or did not stay. The log of a "
        "worker says why; often it is too little memory (--conf spark.executor.memory=…)",
    ),
    _Known(
        re.compile(r"All masters are unresponsive"),
        "Spark's master does not answer. Look at its address (--master) and at its log",
    ),
)


def known_cause(text: str) -> str | None:
    """The sentence for the first of them that the account of a failure has; None if it has none."""
    for known in _KNOWN:
        match = known.pattern.search(text)
        if match is not None:
            return known.sentence.format(*match.groups())
    return None


def account_of(error: BaseException) -> str:
    """Everything that is known of a failure: Python's stacks, and those of Java where there are some."""
    parts = ["".join(traceback.format_exception(error))]
    seen: BaseException | None = error
    while seen is not None:
        stack = getattr(seen, "_stackTrace", None)
        if isinstance(stack, str):
            parts.append(stack)
        seen = seen.__cause__
    return "\n\n".join(parts)
