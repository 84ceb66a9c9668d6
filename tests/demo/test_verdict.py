"""What people and programs are told at the end: within 80 columns, and red where something is wrong."""

import io

import msgspec
import pytest
from rich.console import Console

from oncelog.demo.verdict import FaceResult, Verdict, show

pytest.importorskip("pyspark", reason="the result of an audit lies beside the audit, which needs Spark")

from oncelog.pipelines.auditing import AuditResult, TopicAudit


def verdict(scale: int, *, lost: int = 0) -> Verdict:
    topics = [
        TopicAudit("orders", records=11_200 * scale, sent=11_200 * scale, confirmed=11_200 * scale, lost=lost),
        TopicAudit("sales", records=10_042 * scale, sent=10_042 * scale, confirmed=10_042 * scale, table_rows=10_042),
        TopicAudit("revenue", records=17, sent=17, confirmed=17),
    ]
    audit = AuditResult(topics, lost, 0, 0, 0, 0, 0, 21_259 * scale, examples=["orders: x-1 is lost"] if lost else [])
    faces = [
        FaceResult("HTTP commits", 9_000 * scale, 9_000 * scale, 258 * scale, 390 * scale, 1),
        FaceResult("IdempotentProducer", 18_000 * scale, 18_000 * scale, -1, 757 * scale, 2),
    ]
    return Verdict(lost == 0, 7, float(scale), 95.0, faces, audit, 6, 4, 1, 657 * scale, 387 * scale, "report.html")


def shown(result: Verdict) -> list[str]:
    output = io.StringIO()
    show(result, Console(file=output, width=80))
    return output.getvalue().splitlines()


@pytest.mark.parametrize("scale", [1, 10, 100])
def test_table_fits_eighty_columns_and_has_no_trailing_blanks(scale: int) -> None:
    lines = shown(verdict(scale))
    assert [line for line in lines if len(line) > 80 or line != line.rstrip()] == []


def test_every_face_and_topic_has_its_row_and_every_number_its_column() -> None:
    lines = shown(verdict(1))
    columns = {name: lines[2].index(name) + len(name) for name in ("sent", "firmed", "tried", "cates", "lost", "flict")}
    commits = next(line for line in lines if line.startswith("HTTP commits"))
    assert commits[: columns["sent"]].endswith("9,000")
    assert commits[: columns["tried"]].endswith(" 258")
    assert commits[: columns["cates"]].endswith(" 390")
    client = next(line for line in lines if line.startswith("IdempotentProducer"))
    assert client[columns["firmed"] : columns["tried"]].strip() == "", "a client that does not tell has no number"
    orders = next(line for line in lines if line.startswith("orders"))
    assert orders[: columns["lost"]].endswith(" 0")
    assert len(orders) == columns["flict"]


def test_a_loss_is_told_with_its_number_and_an_example() -> None:
    lines = shown(verdict(1, lost=3))
    assert any(line.startswith("lost 3, doubled 0") for line in lines)
    assert "  orders: x-1 is lost" in lines


def test_result_for_programs_has_the_verdict_and_the_audit() -> None:
    told = msgspec.json.decode(msgspec.json.encode(verdict(1)))
    assert told["sound"] is True
    assert told["audit"]["topics"][0]["lost"] == 0
