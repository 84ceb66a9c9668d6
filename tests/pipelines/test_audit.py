"""The audit finds each fault that is planted, counts it, and passes what is sound."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog import pipelines
from oncelog.cli.pipeline import show_audit
from oncelog.client import Client, CommitAppend, CommitRecord
from oncelog.pipelines.audit_result import AuditResult
from oncelog.pipelines.ledger import Ledger, lines_of, unsettled
from tests.pipelines.topics import JSON, filled, name, numbers, raw
from tests.spark.serving import Server


class Writer:
    """A producer that keeps a ledger and says the truth in it, unless a test has it do something else."""

    def __init__(self, url: str, path: Path, writer: str = "w1", face: str = "http") -> None:
        self.client = Client(url)
        self.ledger = Ledger(path, writer=writer, face=face)

    def write(
        self, topic: str, record_id: str, value: object = None, *, partition: int = 0, confirm: bool = True
    ) -> int:
        data = json.dumps({"id": record_id, "v": value}).encode()
        self.ledger.sent(topic, record_id, data, partition=partition)
        self.ledger.sync()
        offset = self.append(topic, data, partition)
        if confirm:
            self.ledger.confirmed(topic, record_id, offset, partition=partition)
        return offset

    def append(self, topic: str, data: bytes, partition: int = 0) -> int:
        return self.client.append(topic, data, partition=partition).offset

    def commit(self, commit: str, ids: dict[str, str], *, leave_out: str = "") -> None:
        values = {topic: json.dumps({"id": record_id}).encode() for topic, record_id in ids.items()}
        for topic, record_id in ids.items():
            self.ledger.sent(topic, record_id, values[topic], partition=0, commit=commit)
        self.ledger.sync()
        self.client.commit(
            [CommitAppend(topic, [CommitRecord(value)]) for topic, value in values.items() if topic != leave_out]
        )

    def close(self) -> None:
        self.ledger.close()
        self.client.close()


class Scene:
    """A sound beginning, to which a test adds its fault: two topics, two writers, one commit."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.orders, self.payments = name("orders"), name("payments")
        with Client(url) as client:
            for topic in (self.orders, self.payments):
                client.create_topic(topic, partitions=2, content_type=JSON)
        self.first = Writer(url, folder / "w1.jsonl", "w1")
        self.second = Writer(url, folder / "w2.jsonl", "w2", "commit")
        for number in range(20):
            self.first.write(self.orders, f"o{number}", number, partition=number % 2)
        self.second.commit("c1", {self.orders: "oc1", self.payments: "pc1"})

    def audit(self, spark: Any, **options: Any) -> AuditResult:
        self.first.close()
        self.second.close()
        ledgers = [self.first.ledger.path, self.second.ledger.path]
        topics = [self.orders, self.payments]
        return pipelines.audit(url=self.url, topics=topics, ledgers=ledgers, spark=spark, **options)


@pytest.fixture
def scene(server: Server, tmp_path: Path) -> Scene:
    return Scene(server.url, tmp_path)


def faults(result: AuditResult) -> dict[str, int]:
    names = ("lost", "doubled", "torn", "out_of_order", "conflicting", "unexpected")
    return {name: getattr(result, name) for name in names if getattr(result, name)}


def test_sound_log_passes_and_every_record_is_counted(spark: Any, scene: Scene, tmp_path: Path) -> None:
    # Sent and never confirmed, and in the log: a killed producer leaves such ones, and they are no fault.
    scene.first.write(scene.orders, "killed", confirm=False)
    # Sent, and it never arrived: no fault either.
    scene.first.ledger.sent(scene.orders, "never", b"{}", partition=0)
    # Sent twice, stored once: the second confirmation tells the first offset.
    offset = scene.first.write(scene.orders, "retried")
    scene.first.ledger.confirmed(scene.orders, "retried", offset, partition=0)
    result = scene.audit(spark)
    assert result.sound, result.examples
    orders = result.topics[0]
    assert (orders.records, orders.sent, orders.confirmed, result.records) == (23, 24, 21, 24)


def lose(scene: Scene) -> None:
    scene.first.ledger.sent(scene.orders, "gone", b"{}")
    scene.first.ledger.confirmed(scene.orders, "gone", 17, partition=0)


def misplace(scene: Scene) -> None:
    offset = scene.first.write(scene.orders, "moved", confirm=False)
    scene.first.ledger.confirmed(scene.orders, "moved", offset + 5, partition=0)


def double(scene: Scene) -> None:
    scene.first.write(scene.orders, "twice", "same")
    scene.first.append(scene.orders, json.dumps({"id": "twice", "v": "same"}).encode(), 1)


def tear(scene: Scene) -> None:
    scene.second.commit("c2", {scene.orders: "oc2", scene.payments: "pc2"}, leave_out=scene.payments)


def disorder(scene: Scene) -> None:
    early, late = ({"id": record_id, "v": None} for record_id in ("early", "late"))
    for record in (early, late):
        scene.first.ledger.sent(scene.orders, record["id"] or "", json.dumps(record).encode(), partition=0)
    for record in (late, early):
        scene.first.append(scene.orders, json.dumps(record).encode())


def conflict(scene: Scene) -> None:
    scene.first.write(scene.orders, "two", "one content")
    scene.first.write(scene.orders, "two", "another", confirm=False)


def alter(scene: Scene) -> None:
    scene.first.ledger.sent(scene.orders, "altered", b'{"id": "altered", "v": "as sent"}', partition=0)
    scene.first.append(scene.orders, b'{"id": "altered", "v": "as stored"}')


def intrude(scene: Scene) -> None:
    scene.first.append(scene.orders, b'{"id": "nobody"}')


def refuse(scene: Scene) -> None:
    value = json.dumps({"id": "refused", "v": 1}).encode()
    scene.first.ledger.sent(scene.orders, "refused", value, partition=0)
    scene.first.ledger.refused(scene.orders, "refused", value)
    scene.first.append(scene.orders, value)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose, {"lost": 1}),
        (misplace, {"lost": 1}),
        (double, {"doubled": 1}),
        (tear, {"torn": 1}),
        (disorder, {"out_of_order": 1}),
        (conflict, {"conflicting": 1}),
        (alter, {"conflicting": 1}),
        (intrude, {"unexpected": 1}),
        (refuse, {"unexpected": 1}),
    ],
)
def test_planted_fault_is_found_and_counted_as_what_it_is(
    spark: Any, scene: Scene, plant: Callable[[Scene], None], found: dict[str, int]
) -> None:
    plant(scene)
    result = scene.audit(spark)
    assert faults(result) == found
    assert not result.sound
    assert len(result.examples) == 1


def landed(spark: Any, server: Server, folder: Path) -> tuple[str, Path]:
    topic = filled(server.url, name("landed"), numbers(0, 40))
    pipelines.land(spark, url=server.url, topic=topic, table=str(folder), schema="id string, n int, kind string")
    return topic, folder


def table_audit(spark: Any, server: Server, topic: str, table: Path) -> AuditResult:
    return pipelines.audit(url=server.url, topics=[topic], table=str(table), spark=spark)


def test_table_that_holds_every_record_once_passes(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, table = landed(spark, server, tmp_path / "table")
    result = table_audit(spark, server, topic, table)
    assert result.sound, result.examples
    assert result.topics[0].table_rows == result.records == 40


def change_table(table: Path, change: Callable[[Any], Any]) -> None:
    """Has the table's rows replaced, as a careless hand would."""
    from deltalake import DeltaTable, write_deltalake

    delta = DeltaTable(str(table))
    write_deltalake(delta, change(delta.to_pyarrow_table()), mode="overwrite")


def altered(rows: Any) -> Any:
    import pyarrow as pa

    kinds = rows.column("kind").to_pylist()
    kinds[7] = "changed"
    return rows.set_column(rows.schema.get_field_index("kind"), "kind", pa.array(kinds, pa.string()))


def moved(rows: Any) -> Any:
    import pyarrow as pa

    offsets = rows.column("_offset").to_pylist()
    offsets[-1] += 1000
    return rows.set_column(rows.schema.get_field_index("_offset"), "_offset", pa.array(offsets, pa.int64()))


def doubled_rows(rows: Any) -> Any:
    import pyarrow as pa

    return pa.concat_tables([rows, rows.slice(5, 2)])


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda rows: rows.slice(3), {"lost": 3}),
        (doubled_rows, {"doubled": 2}),
        (altered, {"conflicting": 1}),
        (moved, {"lost": 1, "unexpected": 1}),
    ],
    ids=["missing", "doubled", "altered", "moved"],
)
def test_fault_in_the_table_is_found(
    spark: Any, server: Server, tmp_path: Path, change: Callable[[Any], Any], found: dict[str, int]
) -> None:
    topic, table = landed(spark, server, tmp_path / "table")
    change_table(table, change)
    assert faults(table_audit(spark, server, topic, table)) == found


def test_records_that_came_after_the_landing_are_missing_in_the_table(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    topic, table = landed(spark, server, tmp_path / "table")
    filled(server.url, topic, numbers(40, 46))
    assert faults(table_audit(spark, server, topic, table)) == {"lost": 6}


def test_rows_that_are_no_json_are_told_and_are_no_fault(
    spark: Any, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, table, report = (
        raw(server.url, name("bad"), [b'{"n": 1}', b"no JSON"]),
        tmp_path / "table",
        tmp_path / "page",
    )
    pipelines.land(spark, url=server.url, topic=topic, table=str(table), schema="n int")
    result = pipelines.audit(url=server.url, topics=[topic], table=str(table), report=report, spark=spark)
    assert (result.sound, result.topics[0].table_unparsed) == (True, 1)
    show_audit(result)
    assert f"{topic}: 1 row with a value that is not JSON of the table's schema" in capsys.readouterr().out
    assert "1 of the values are not JSON of the table's schema" in report.read_text()


def test_record_that_was_trimmed_is_neither_lost_nor_unexpected(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, table = landed(spark, server, tmp_path / "table")
    with Client(server.url) as client:
        client.trim(topic, 5, partition=0)
    result = table_audit(spark, server, topic, table)
    assert result.sound, result.examples
    assert (result.records, result.topics[0].table_rows) == (35, 40)


def test_report_is_one_page_that_needs_nothing_else(spark: Any, scene: Scene, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"time_ms": 1, "kind": "server killed", "label": "kill <1>"}\n')
    report = tmp_path / "out" / "report.html"
    lose(scene)
    result = scene.audit(spark, report=report, events=events, title="A & B", seed="7", command="oncelog demo")
    page = report.read_text()
    assert result.report == str(report)
    assert "1 lost" in page
    assert "A &amp; B" in page
    assert "kill &lt;1&gt;" in page
    assert not re.search(r"<script|(?:src|href)\s*=|https?://|@import|url\(", page)


def test_ledger_of_a_killed_producer_is_read_without_its_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, writer="w") as ledger:
        for record_id in ("a", "b", "c"):
            ledger.sent("t", record_id, b"x")
        ledger.confirmed("t", "a", 0)
        ledger.refused("t", "b", b"x")
    with path.open("ab") as file:
        file.write(b'{"state":"sent","writ')
    with Ledger(path, writer="w") as ledger:
        ledger.sent("t", "d", b"y")
    assert [line.id for line in lines_of(path)] == ["a", "b", "c", "a", "b", "d"]
    assert [line.id for line in unsettled(path)] == ["c", "d"]
    orders = [line.order for line in lines_of(path) if line.state == "sent"]
    assert orders == sorted(orders)


def test_ledger_that_is_not_there_is_refused(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("none"), numbers(0, 1))
    with pytest.raises(pipelines.PipelineRefused, match="no ledger"):
        pipelines.audit(url=server.url, topics=[topic], ledgers=[tmp_path / "absent.jsonl"], spark=spark)


def test_audit_with_nothing_to_compare_is_refused(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("alone"), [{"id": "twice"}, {"id": "twice"}], partitions=1)
    with pytest.raises(pipelines.PipelineRefused, match="nothing to compare"):
        pipelines.audit(url=server.url, topics=[topic], spark=spark)
    with Ledger(tmp_path / "other.jsonl", writer="w") as ledger:
        ledger.sent("another", "a", b"x")
    with pytest.raises(pipelines.PipelineRefused, match="no ledger names"):
        pipelines.audit(url=server.url, topics=[topic], ledgers=[ledger.path], spark=spark)


def test_topic_without_ledger_and_table_is_told_as_not_judged(
    spark: Any, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, table = landed(spark, server, tmp_path / "table")
    alone = filled(server.url, name("alone"), [{"id": "twice"}, {"id": "twice"}], partitions=1)
    report = tmp_path / "report.html"
    result = pipelines.audit(url=server.url, topics=[topic, alone], table=str(table), report=report, spark=spark)
    assert (result.sound, result.not_judged) == (True, [alone])
    page = report.read_text()
    assert "Everything that was judged is there, once." in page
    assert f"Not judged: {alone}." in page
    show_audit(result)
    assert "not judged" in capsys.readouterr().out


def test_maps_inside_other_types_are_compared(spark: Any, server: Server, tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"n": 1, "tags": [{"a": 1}], "deep": {"m": {"x": "y"}}, "mm": {"k": {"l": 2}}},
        {"n": 2},
    ]
    topic, table = filled(server.url, name("maps"), records), tmp_path / "table"
    schema = "n int, tags array<map<string,int>>, deep struct<m: map<string,string>>, mm map<string,map<string,int>>"
    pipelines.land(spark, url=server.url, topic=topic, table=str(table), schema=schema)
    result = table_audit(spark, server, topic, table)
    assert result.sound, result.examples
    assert result.topics[0].table_rows == 2


def test_topic_with_a_quote_in_its_name_is_audited(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, table = filled(server.url, name("o'brien"), numbers(0, 4)), tmp_path / "table"
    pipelines.land(spark, url=server.url, topic=topic, table=str(table))
    filled(server.url, topic, numbers(4, 5))
    result = table_audit(spark, server, topic, table)
    assert faults(result) == {"lost": 1}
    assert result.examples[0].startswith(f"{topic}: partition")
