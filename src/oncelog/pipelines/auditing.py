"""`audit`: what the producers say they sent, what is in the log, what is in the table. The three must agree.

The comparison is Spark's (`audit_queries`); this module asks the questions in turn and adds the answers up.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from oncelog.client import Client
from oncelog.client.models import StreamInfo
from oncelog.pipelines import audit_queries as queries
from oncelog.pipelines.audit_result import EXAMPLES_MAX, FAULTS, AuditResult, TopicAudit
from oncelog.pipelines.json_values import UNPARSED
from oncelog.pipelines.lake import LakeTable
from oncelog.pipelines.landing import check_files, lake_of
from oncelog.pipelines.report import Latency, ReportData, events_of, write_report
from oncelog.pipelines.running import PipelineFailed, PipelineRefused, PipelineResult, Spark, reason_of, started
from oncelog.pipelines.writers import Run

IDENTITY: Final = "get_json_object(cast(value AS string), '$.id')"
"""Where a record carries its identity: the field `id` of its JSON value."""


TIMELINE_STEPS: Final = 120
"""Columns of the chart over time: a screen shows no more."""

_SAID_OF_LOG: Final = {
    "lost": ("lost", "is confirmed and not in the log where the server said"),
    "doubled": ("extra > 0", "is in the log more than once"),
    "conflicting": ("conflicting", "has two contents, or another than was sent"),
    "unexpected": ("unexpected > 0", "is in the log and in no ledger, or was refused"),
}
_SAID_OF_TABLE: Final = {
    "table_lost": ("lost", "is in the log and not in the table"),
    "table_doubled": ("extra > 0", "is in the table more than once"),
    "table_conflicting": ("conflicting", "says in the table what the log does not say"),
    "table_unexpected": ("unexpected", "is in the table and not in the log"),
}


def audit(
    *,
    url: str,
    topics: Sequence[str],
    table: str | Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    ledgers: Sequence[Path] = (),
    report: Path | None = None,
    identity: str | Mapping[str, str] = IDENTITY,
    events: Path | None = None,
    batches: Mapping[str, PipelineResult] | None = None,
    title: str = "oncelog audit",
    seed: str = "",
    command: str = "",
    run: Run | None = None,
    spark: Spark | None = None,
    master: str = "local[*]",
    progress: Callable[[str], None] | None = None,
) -> AuditResult:
    """Compares log, table and ledgers; with `report` also writes a page.

    `table` is a landed table, or one for each topic; `storage_options` are those of an object store.
    `ledgers` are files of `Ledger`; a topic that no ledger names is only compared with the table, and without one it is
    told as not judged. `identity` is an SQL expression over key, value and headers that gives a record's id, one for
    all or one per topic. `events` is a file of JSON lines `{"time_ms", "kind", "label"}`: kills and the like, marked in
    the report. `batches` are results of pipelines by name (`PipelineResult`), drawn in the report. `seed` and `command`
    go into its foot, `run` tells what the writers met. `spark` is a session, or a function that starts one once topics,
    tables and ledgers are found to be there; without it one is started and
    stopped again. `progress` is told each step.
    """
    from oncelog.pipelines.sessions import session

    began_s = time.monotonic()
    if not topics:
        raise PipelineRefused("say which topics are to be audited")
    if not ledgers and not table:
        raise PipelineRefused("there is nothing to compare the log with: give ledgers, a table, or both")
    missing = [str(path) for path in ledgers if not path.is_file()]
    if missing:
        raise PipelineRefused(f"there is no ledger {', '.join(missing)}")
    marks = events_of(events) if events is not None else []
    lakes = {topic: lake_of(path, storage_options) for topic, path in _tables(table, topics, storage_options).items()}
    for lake in lakes.values():
        check_files(lake)
    streams = _streams(url, topics)
    made = spark is None
    spark = session(master, "oncelog-audit") if made else started(spark)
    try:
        job = _Audit(spark, url, list(topics), streams, progress or _tell_nobody)
        job.log(identity if isinstance(identity, Mapping) else dict.fromkeys(topics, identity), ledgers)
        for topic, lake in lakes.items():
            job.table(topic, lake)
        result = job.result()
        if report is not None:
            job.step("writing the report")
            data = job.report_data(result, title, seed, command, batches or {})
            data.events, data.run = marks, run
            data.duration_s = result.duration_s = time.monotonic() - began_s
            write_report(report, data)
            result.report = str(report)
        job.forget()
    except (PySparkException, Py4JError) as error:
        raise PipelineFailed(reason_of(error)) from error
    finally:
        if made:
            spark.stop()
    result.duration_s = time.monotonic() - began_s
    return result


def _tell_nobody(_step: str) -> None:
    """Where nobody asked."""


def _tables(
    table: str | Mapping[str, str] | None, topics: Sequence[str], storage_options: Mapping[str, str] | None
) -> dict[str, str]:
    """Topic → its table. One table for several topics has those that were landed in it."""
    if table is None:
        return {}
    if isinstance(table, Mapping):
        unknown = sorted(set(table) - set(topics))
        if unknown:
            raise PipelineRefused(f"a table is given for {unknown}, which are not among the topics {list(topics)}")
        return dict(table)
    if len(topics) == 1:
        return {topics[0]: table}
    lake = lake_of(table, storage_options)
    # Partition 0 is there in every topic, and a commit of `land` names all partitions.
    found = {topic: table for topic in topics if lake.held(topic, [0]).ends}
    if not found:
        raise PipelineRefused(f"{table} holds none of the topics {list(topics)}")
    return found


def _streams(url: str, topics: Sequence[str]) -> list[StreamInfo]:
    """Where the topics stand, all at one instant: everything is looked at as of then, whoever goes on writing."""
    with Client(url) as client:
        streams = client.cut(*topics).streams
    absent = sorted(set(topics) - {stream.topic for stream in streams})
    if absent:
        raise PipelineRefused(f"there is no topic {', '.join(absent)} at {url}")
    return streams


class _Audit:
    """One audit. What is asked for twice stays with Spark until it is over."""

    def __init__(
        self, spark: Any, url: str, topics: list[str], streams: list[StreamInfo], step: Callable[[str], None]
    ) -> None:
        self.step = step
        self._spark = spark
        self._url = url
        self._found = {topic: TopicAudit(topic) for topic in topics}
        self._torn = 0
        self._examples: list[str] = []
        self._identities: Any = None
        self._ends: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        for stream in streams:
            self._ends[stream.topic][stream.partition] = stream.stable
        floors = [(stream.topic, stream.partition, stream.floor) for stream in streams]
        self._floors = spark.createDataFrame(floors, "_topic string, _partition int, floor bigint")

    def log(self, identity: Mapping[str, str], ledgers: Sequence[Path]) -> None:
        """What is in the log, against what its producers say."""
        self.step("reading the log")
        log = queries.identified(queries.log_of(self._spark, self._url, self._ends), identity)
        if not ledgers:
            for row in log.groupBy("topic").count().collect():
                self._found[row.topic].records = row["count"]
            return
        self.step("comparing the log with the ledgers")
        lines = queries.lines_of(self._spark, ledgers, list(self._found), self._floors)
        self._identities = identities = queries.by_identity(log, lines).persist()
        named = False
        for row in queries.counts(identities).collect():
            topic = self._found[row.topic]
            topic.records = row.records
            if row.sent:  # a topic that no ledger names has nothing to be compared with
                named = True
                topic.sent, topic.confirmed, topic.lost = row.sent, row.confirmed, row.lost
                topic.doubled, topic.conflicting, topic.unexpected = row.doubled, row.conflicting, row.unexpected
        if not named:
            raise PipelineRefused(f"no ledger names any of the topics {sorted(self._found)}")
        compared = identities.where(identities.topic.isin([name for name, topic in self._found.items() if topic.sent]))
        for field, (condition, says) in _SAID_OF_LOG.items():
            if any(getattr(topic, field) for topic in self._found.values()):
                self._tell(compared.where(condition), says)
        self.step("comparing order and commits")
        self._order(identities)
        self._commits(identities)

    def _order(self, identities: Any) -> None:
        rows = queries.out_of_order(identities)
        for row in rows.groupBy("topic").count().collect():
            self._found[row.topic].out_of_order = row["count"]
        if any(topic.out_of_order for topic in self._found.values()):
            self._tell(rows, "stands behind a later one of its writer")

    def _commits(self, identities: Any) -> None:
        broken = queries.torn(identities).persist()
        self._torn = broken.count()
        if self._torn:
            for row in broken.selectExpr("explode(topics) AS topic").groupBy("topic").count().collect():
                self._found[row.topic].torn = row["count"]
            said = "concat(present, ' of ', records, ' records of the commit ', commit) AS id"
            self._tell(broken.selectExpr("array_join(topics, ' and ') AS topic", said), "are there")

    def table(self, topic: str, lake: LakeTable) -> None:
        """The table against the log."""
        self.step(f"comparing {topic} with its table")
        schema = lake.schema()
        rows = queries.table_of(self._spark, lake, schema)
        records = queries.log_of(self._spark, self._url, {topic: self._ends[topic]})
        places = queries.by_place(records, rows.where(rows["_topic"] == topic), schema, self._floors)
        (row,) = queries.table_counts(places).collect()
        found = self._found[topic]
        found.table_rows, found.table_lost, found.table_doubled = row.rows, row.lost, row.doubled
        found.table_conflicting, found.table_unexpected = row.conflicting, row.unexpected
        found.table_unparsed = rows.where(rows["_topic"] == topic).where(rows[UNPARSED].isNotNull()).count()
        for field, (condition, says) in _SAID_OF_TABLE.items():
            if getattr(found, field):
                self._tell(places.where(condition).select(F.lit(topic).alias("topic"), "id"), says)

    def _tell(self, rows: Any, says: str) -> None:
        some = rows.select("topic", "id").limit(EXAMPLES_MAX).collect()
        self._examples += [f"{row.topic}: {row.id} {says}" for row in some]

    def result(self) -> AuditResult:
        """All counts. PipelineRefused if nothing was compared: no fault would then mean nothing."""
        found = list(self._found.values())
        not_judged = [topic.topic for topic in found if not topic.judged]
        if len(not_judged) == len(found):
            raise PipelineRefused(f"no ledger and no table is about any of the topics {not_judged}")
        return AuditResult(
            found,
            lost=sum(topic.lost + topic.table_lost for topic in found),
            doubled=sum(topic.doubled + topic.table_doubled for topic in found),
            torn=self._torn,
            out_of_order=sum(topic.out_of_order for topic in found),
            conflicting=sum(topic.conflicting + topic.table_conflicting for topic in found),
            unexpected=sum(topic.unexpected + topic.table_unexpected for topic in found),
            records=sum(topic.records for topic in found),
            examples=self._examples,
            not_judged=not_judged,
        )

    def report_data(
        self, result: AuditResult, title: str, seed: str, command: str, batches: Mapping[str, PipelineResult]
    ) -> ReportData:
        """What the page shows."""
        counts = {name: getattr(result, name) for name in FAULTS}
        topics = [msgspec.structs.asdict(topic) for topic in result.topics]
        data = ReportData(title, result.sound, counts, result.records, topics, result.examples, seed, command)
        data.batches = {name: pipeline.history for name, pipeline in batches.items() if pipeline.history}
        data.not_judged = result.not_judged
        data.spark_version = self._spark.version
        if self._identities is not None:
            self._timed(data)
        return data

    def _timed(self, data: ReportData) -> None:
        """Confirmations over time, and how long they took."""
        latencies = queries.latencies(self._identities)
        faces = queries.latency_by_face(latencies).collect()
        for row in faces:
            median, p95, p99 = row.quantiles
            data.latencies.append(Latency(row.face, row.n, median, p95, p99, row.longest))
        if not faces:
            return
        first_ms, last_ms = min(row.first_ms for row in faces), max(row.last_ms for row in faces)
        data.step_ms = max(100, -(-(last_ms - first_ms + 1) // TIMELINE_STEPS))
        for row in queries.timeline(latencies, first_ms, data.step_ms).collect():
            data.confirms.setdefault(row.face, {})[row["at"]] = row["count"]

    def forget(self) -> None:
        """Lets Spark have its room back."""
        if self._identities is not None:
            self._identities.unpersist()
