"""The Spark driver of the demo, a process of its own so that it can be killed: runs the pipelines pass after pass.

    python -m oncelog.demo.driver '{"url": …, "folder": …, …}'

Each pass brings every pipeline to the end of what is there. The pass that began after the writers had ended (the file
`WRITING_DONE` is there) is the last; the audit follows when it is asked for (`AUDIT_WANTED`). A line of JSON on stdout
tells of each batch. Nothing here knows of kills: the next driver is told the same, finds the same files, and goes on.
It ends when its stdin does.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from oncelog.client import Client
from oncelog.client.errors import NotFound
from oncelog.demo import flows, lifeline
from oncelog.demo.orders import PARTITIONS, PAYMENTS
from oncelog.demo.places import Places
from oncelog.demo.plant import FACTS

if TYPE_CHECKING:
    # Spark is loaded when the driver starts, and not where one only talks to it.
    from oncelog.pipelines.audit_result import AuditResult

MASTER: Final = "local[2,4]"
"""Two cores; four attempts for each task, as on a cluster."""

SHORT_LIFE: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a virtual machine that lives a minute: the best compiler costs more than it gains. A third less CPU, measured."""

PAUSE_S: Final = 0.5
"""Between two passes, so that there is something to do in the next one."""

LOOK_S: Final = 0.1
"""How often it is looked whether the audit is wanted."""


class Told(msgspec.Struct, frozen=True):
    """What the driver is told."""

    url: str
    audit_url: str
    """A way to the server that no answer is dropped on: the audit is to be about the log."""
    folder: str
    batch_offsets: int
    report: str
    seed: int
    scale: float


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the driver says."""

    event: str
    """session, begin, batch, flowed, step or audit"""
    flow: str = ""
    rows: int = 0
    text: str = ""
    audit: msgspec.Raw = msgspec.Raw(b"null")
    """An `AuditResult`, as JSON."""


class Batch(msgspec.Struct, frozen=True):
    """One batch, kept over the death of its driver for the report."""

    flow: str
    batch: int
    input_rows: int
    output_rows: int
    duration_s: float
    ended_ms: int


def main() -> int:
    lifeline.hold()
    from oncelog.pipelines.running import PipelineFailed, PipelineRefused

    try:
        _drive()
    except (PipelineFailed, PipelineRefused) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def _drive() -> None:
    told = msgspec.json.decode(sys.argv[1], type=Told)
    places = Places(Path(told.folder))
    spark = _session(places)
    _say(Said("session"))
    while True:
        is_last = places.writing_done.exists()
        run_pass(spark, told, places)
        if is_last:
            break
        time.sleep(PAUSE_S)
    _say(Said("flowed"))
    while not places.audit_wanted.exists():
        time.sleep(LOOK_S)
    _say(Said("audit", audit=msgspec.Raw(msgspec.json.encode(_audit(spark, told, places)))))
    spark.stop()


def run_pass(spark: Any, told: Told, places: Places) -> None:
    """Every pipeline once, to the end of what is there."""
    from oncelog.pipelines.landing import land
    from oncelog.pipelines.transforming import transform

    derived: dict[str, Any] = {"url": told.url, "partitions": PARTITIONS, "content_type": "application/json"}
    transform(
        spark, target=flows.SALES, application=flows.SALES, checkpoint=str(places.checkpoint(flows.SALES)),
        schemas=flows.SCHEMAS, sql=flows.SALES_SQL, max_offsets_per_trigger=told.batch_offsets,
        progress=_teller(flows.SALES, places), **derived,
    )  # fmt: skip
    # Without a limit: what closes the last window must not be read before the payments that belong into it.
    transform(
        spark, target=flows.REVENUE, application=flows.REVENUE, checkpoint=str(places.checkpoint(flows.REVENUE)),
        schemas={PAYMENTS: flows.PAYMENT_FIELDS}, sql=flows.REVENUE_SQL, event_time="at", watermark=flows.WATERMARK,
        progress=_teller(flows.REVENUE, places), **derived,
    )  # fmt: skip
    land(
        spark, url=told.url, topic=flows.SALES, table=str(places.table(flows.SALES)), schema=flows.SALE_FIELDS,
        application=flows.LAND, progress=_teller(flows.LAND, places),
    )  # fmt: skip
    if _is_there(told.url, FACTS):
        land(
            spark, url=told.url, topic=FACTS, table=str(places.table(FACTS)), schema=flows.FACT_FIELDS,
            application=flows.LAND_FACTS, progress=_teller(flows.LAND_FACTS, places),
        )  # fmt: skip


def _is_there(url: str, topic: str) -> bool:
    """Whether the topic has been made: that of facts is there from the first fact on."""
    with Client(url) as client:
        try:
            client.topic(topic)
        except NotFound:
            return False
    return True


def _audit(spark: Any, told: Told, places: Places) -> "AuditResult":
    from oncelog.pipelines.auditing import audit
    from oncelog.pipelines.writers import Run

    return audit(
        url=told.audit_url,
        topics=flows.AUDITED,
        table={topic: str(places.table(topic)) for topic in flows.LANDED},
        ledgers=[*places.ledgers(), places.expected],
        report=Path(told.report),
        identity=flows.IDENTITIES,
        events=places.events,
        batches=_results(places),
        title="oncelog demo",
        seed=str(told.seed),
        run=msgspec.json.decode(places.run.read_bytes(), type=Run),
        command=f"oncelog demo --seed {told.seed} --scale {told.scale:g}",
        spark=spark,
        progress=lambda text: _say(Said("step", text=text)),
    )


def _results(places: Places) -> dict[str, Any]:
    """What all drivers have done together, by pipeline."""
    from oncelog.pipelines.running import BatchDone, PipelineResult

    results = {flow: PipelineResult(flow, flow, history=[]) for flow in flows.LABELS}
    for line in places.batches.read_bytes().splitlines():
        done = msgspec.json.decode(line, type=Batch)
        result = results[done.flow]
        result.batches += 1
        result.input_rows += done.input_rows
        result.output_rows += done.output_rows
        result.duration_s += done.duration_s
        result.history.append(
            BatchDone(done.batch, done.input_rows, done.output_rows, done.duration_s, done.ended_ms)
        )  # fmt: skip
    return results


def _session(places: Places) -> Any:
    from oncelog.pipelines.sessions import session

    scratch = places.scratch
    scratch.mkdir(exist_ok=True)
    return session(
        MASTER,
        "oncelog demo",
        **{
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            # A killed virtual machine cleans up nothing; so that all it leaves goes with the folder.
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData {SHORT_LIFE}",
        },
    )


def _teller(flow: str, places: Places) -> Callable[[Any], None]:
    _say(Said("begin", flow))

    def tell(progress: Any) -> None:
        if progress.stage == "done":
            ended_ms = time.time_ns() // 1_000_000
            batch = Batch(
                flow, progress.batch, progress.input_rows, progress.output_rows, progress.duration_s, ended_ms
            )  # fmt: skip
            with places.batches.open("ab") as file:
                file.write(msgspec.json.encode(batch) + b"\n")
            _say(Said("batch", flow, progress.output_rows))

    return tell


def _say(said: Said) -> None:
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
