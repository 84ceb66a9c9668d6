"""One run of a pipeline from the command line: Spark when it is asked for, a line that says what goes on, one way out.

The pipelines look at names first and then ask for Spark, so a wrong name ends the verb at once. Everything that ends a
run early, Ctrl-C included, is one line and an exit code.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from oncelog.cli import exits
from oncelog.cli.remote import failures_told, probe
from oncelog.cli.screen import end, progress, say

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from oncelog.pipelines.running import Progress

INSTALL: Final = "pipelines run on Spark, which is not installed: pip install 'oncelog[spark]'"

INTERRUPTED: Final = "interrupted; what was done stays, and another run goes on behind it"

NOTE_S: Final = 10.0
"""How often a run that nobody watches says how far it is: often enough for the log of a job, and no more."""


class Line:
    """What goes on: a line on the screen that changes, and where there is no screen a note now and then."""

    def __init__(self, bar: "Bar", clock: Callable[[], float] = time.monotonic) -> None:
        self._bar = bar
        self._clock = clock
        self._task = bar.add_task("looking at topics", total=None)
        self._noted_s: float | None = None

    def say(self, text: str) -> None:
        """This goes on now."""
        self._bar.update(self._task, description=text)
        if not self._bar.disable:
            return
        now_s = self._clock()
        if self._noted_s is None or now_s - self._noted_s >= NOTE_S:
            self._noted_s = now_s
            say(text)

    def told(self, doing: str) -> Callable[["Progress"], None]:
        """How far a pipeline has come."""

        def tell(now: "Progress") -> None:
            lag = f", {now.lag:,} to go" if now.lag > 0 else ""
            age = f", {now.lag_s:,.0f} s behind" if now.lag > 0 and now.lag_s >= 0 else ""
            late = f", {now.late_rows:,} dropped as late" if now.late_rows else ""
            total = f" of {now.total_rows:,}" if now.total_rows >= 0 else ""
            rows = f"{now.total_input_rows:,}{total} {'row' if now.total_input_rows == 1 else 'rows'} in"
            rows += f", {now.total_output_rows:,} out"
            self.say(f"{doing}: batch {now.batch + 1:,}, {rows}, {now.rows_per_s:,.0f} rows/s{lag}{age}{late}")

        return tell


class Run:
    """What a verb works with."""

    def __init__(self, pipelines: Any, spark: Callable[[], Any], line: Line) -> None:
        self.pipelines = pipelines
        """The package: loaded here, as only these verbs need Spark."""
        self.spark = spark
        self.line = line


@contextlib.contextmanager
def running(url: str, master: str, settings: Mapping[str, str]) -> Iterator[Run]:
    """For as long as a pipeline runs. It first checks that Spark is installed and that the server answers."""
    with failures_told(url), _interrupt_told():
        if importlib.util.find_spec("pyspark") is None:
            end(exits.REFUSED, INSTALL)
        asyncio.run(probe(url))
        pipelines = importlib.import_module("oncelog.pipelines")
        with _refusals_told(), _line() as line, _session(master, settings, line) as spark:
            yield Run(pipelines, spark, line)


@contextlib.contextmanager
def _line() -> Iterator[Line]:
    with progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as bar:
        yield Line(bar)


@contextlib.contextmanager
def _session(master: str, settings: Mapping[str, str], line: Line) -> Iterator[Callable[[], Any]]:
    """Starts Spark when a pipeline asks for it, and stops it at the end."""
    from oncelog.pipelines.sessions import session

    made: list[Any] = []

    def start() -> Any:
        line.say("starting Spark")
        # What goes wrong is told by the verb, in one line; Spark's own account would bury it.
        made.append(session(master, "oncelog-pipeline", log_level="OFF", **settings))
        line.say("planning")
        return made[-1]

    try:
        yield start
    finally:
        for spark in made:
            spark.stop()


@contextlib.contextmanager
def _interrupt_told() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        end(exits.REFUSED, INTERRUPTED)


@contextlib.contextmanager
def _refusals_told() -> Iterator[None]:
    """Around the line on the screen, never within it: what is said there is wiped out with it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from oncelog.pipelines.running import PipelineFailed, PipelineRefused, reason_of
    from oncelog.spark.java import JavaMissing

    try:
        yield
    except (Py4JError, PySparkException) as error:
        # What no pipeline expects of Spark is still one line and its cause.
        end(exits.REFUSED, f"{' '.join(reason_of(error).split())}{_account_kept(error)}")
    except (PipelineRefused, PipelineFailed, JavaMissing) as error:
        line = " ".join(str(error).split())
        end(exits.REFUSED, line if error.__cause__ is None else f"{line}{_account_kept(error)}")


def _account_kept(error: BaseException) -> str:
    """Puts the whole account of a failure, Java's stack included, into a file, and names it."""
    from oncelog.pipelines.known_causes import account_of

    try:
        with tempfile.NamedTemporaryFile("w", prefix="oncelog-pipeline-", suffix=".log", delete=False) as file:
            file.write(account_of(error))
    except OSError:
        return ""  # the line has the cause; the rest cannot be kept
    return f" (the whole account: {file.name})"
