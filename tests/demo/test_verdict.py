"""What people and programs are told at the end: a run that did not do what was planned has shown nothing."""

import io
import tempfile
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from oncelog.cli import exits
from oncelog.cli.main import app
from oncelog.demo import run as running
from oncelog.demo.board import Board, Flow, Tally
from oncelog.demo.expected import records_planned, write_expected
from oncelog.demo.faces import FACES, shares_of
from oncelog.demo.flows import AUDITED, LANDED, REVENUE, SALES
from oncelog.demo.needs import missing
from oncelog.demo.network import Weather
from oncelog.demo.orders import AUDIT, CLOSING, CLOSING_FACE, ORDERS, PAYMENTS, TOPICS, order_of
from oncelog.demo.places import Places
from oncelog.demo.plan import Plan, planned
from oncelog.demo.plant import FACE, FACTS, LABEL, facts_of, readings
from oncelog.demo.verdict import FaceResult, Verdict, show, verdict_of
from oncelog.demo.zones import STRIKES
from oncelog.pipelines.audit_result import AuditResult, TopicAudit
from oncelog.pipelines.ledger import SCHEMA, Ledger


def verdict(scale: int, *, lost: int = 0) -> Verdict:
    topics = [
        TopicAudit("orders", records=11_200 * scale, sent=11_200 * scale, confirmed=11_200 * scale, lost=lost),
        TopicAudit("sales", records=10_042 * scale, sent=10_042 * scale, confirmed=10_042 * scale, table_rows=10_042),
        TopicAudit("revenue", records=17, sent=17, confirmed=17),
    ]
    audit = AuditResult(topics, lost, 0, 0, 0, 0, 0, 21_259 * scale, examples=["orders: x-1 is lost"] if lost else [])
    faces = [
        FaceResult("HTTP commits", 9_000 * scale, 9_000 * scale, 9_000 * scale, 258 * scale, 390 * scale, 1),
        FaceResult("IdempotentProducer", 18_000 * scale, 18_000 * scale, 18_000 * scale, -1, 757 * scale, 2),
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


# --- what must have happened ---------------------------------------------------------------------------------

SCALE = 0.05
PLAN = planned(3, SCALE, shares_of(SCALE))


class Run:
    """A run that did all that was planned, as its ledgers, its board and its audit tell it."""

    def __init__(self, folder: Path, plan: Plan = PLAN) -> None:
        self.plan = plan
        self.places = Places(folder)
        self.places.make()
        for share in plan.shares:
            self.write(share.producer, share.face, [(f"{share.producer}-{n}", TOPICS) for n in range(share.orders)])
        self.write(CLOSING, CLOSING_FACE, [(CLOSING, (PAYMENTS,))])
        with Ledger(self.places.ledger(FACE), writer=FACE, face=FACE) as ledger:
            for reading in readings("plant-a", facts_of(plan.scale)):
                ledger.sent(FACTS, reading.reading_id, reading.value)
                ledger.confirmed(FACTS, reading.reading_id)
        tallies = {face.name: Tally(face.label, 0) for face in FACES} | {FACE: Tally(LABEL, 0)}
        self.board = Board(plan.seed, plan.scale, tallies, {"": Flow("")})
        self.board.zone_strikes = len(STRIKES)
        self.board.server_kills, self.board.driver_kills = 6, 1
        self.board.tallies["client"].killed, self.board.tallies["ids"].killed = 3, len(FACES) - 3
        self.board.dropped = self.board.cut = 1
        counts = records_planned(plan)
        self.topics = [TopicAudit(topic, counts[topic], counts[topic], counts[topic]) for topic in AUDITED]
        for topic in self.topics:
            topic.table_rows = counts[topic.topic] if topic.topic in LANDED else -1
        self.lost = 0

    def write(self, producer: str, face: str, orders: list[tuple[str, tuple[str, ...]]]) -> None:
        with Ledger(self.places.ledger(producer), writer=producer, face=face) as ledger:
            for name, topics in orders:
                for topic in topics:
                    ledger.sent(topic, name, b"")
                    ledger.confirmed(topic, name)

    def verdict(self, *weathers: Weather) -> Verdict:
        audit = AuditResult(self.topics, self.lost, 0, 0, 0, 0, 0, sum(topic.records for topic in self.topics))
        given = {"weathers": weathers} if weathers else {}
        return verdict_of(self.plan, self.board, audit, self.places, Path("report.html"), **given)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_run_that_did_what_was_planned_is_sound(run: Run) -> None:
    told = run.verdict()
    assert told.not_shown == []
    assert told.sound
    assert [face.confirmed for face in told.faces] == [450, 900, 180, 151, 450, 72, 40], (
        "the closing payment counts once, at ids"
    )
    assert not any("did not show" in line for line in shown(told))


@pytest.mark.parametrize("left", [0, 3])
def test_face_that_wrote_less_than_planned_is_named(run: Run, left: int) -> None:
    """Also if all that it sent was confirmed, and if it sent nothing at all."""
    run.places.ledger("headers-0").unlink()
    run.write("headers-0", "headers", [(f"headers-0-{number}", TOPICS) for number in range(left)])
    told = run.verdict()
    label = run.board.tallies["headers"].label
    assert told.not_shown == [
        f"{label}: {90 + 3 * left} records {done}, 180 planned" for done in ("sent", "confirmed")
    ]  # fmt: skip
    assert not told.sound


def test_record_that_was_sent_and_never_confirmed_is_named(run: Run) -> None:
    path = run.places.ledger(CLOSING)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    told = run.verdict()
    assert told.not_shown == [f"{run.board.tallies['ids'].label}: 150 records confirmed, 151 planned"]


def test_nothing_at_all_is_not_a_sound_run(run: Run) -> None:
    for path in run.places.ledgers():
        path.unlink()
    run.board.zone_strikes = 0
    run.board.server_kills = run.board.dropped = run.board.cut = 0
    run.topics = []
    told = run.verdict()
    assert told.audit.sound
    assert not told.sound
    assert len(told.not_shown) == 2 * (len(FACES) + 1) + 4 + len(AUDITED) + len(LANDED)


def test_planned_kill_that_never_came_is_named(run: Run) -> None:
    run.board.server_kills -= 1
    assert run.verdict().not_shown == ["server: 5 times killed, 6 planned"]
    run.board.tallies["client"].killed -= 1
    assert run.verdict().not_shown[1:] == [f"producer: {len(FACES) - 1} times killed, {len(FACES)} planned"]
    run.board.driver_kills = 0
    told = run.verdict()
    assert told.not_shown[2:] == ["Spark driver: 0 times killed, 1 planned"]
    assert not told.sound
    lines = shown(told)
    assert lines[lines.index("this run did not show what it should:") + 1] == "  server: 5 times killed, 6 planned"


def test_network_that_did_no_harm_is_named_if_it_should_have(run: Run) -> None:
    run.board.dropped = 0
    assert run.verdict().not_shown == ["network: no answer was dropped"]
    run.board.dropped, run.board.cut = 1, 0
    assert run.verdict().not_shown == ["network: no connection was cut"]
    run.board.dropped = 0
    assert run.verdict(Weather(0, 0, 0.5)).sound, "a network that only delays drops nothing"
    assert len(run.verdict(Weather(0, 0, 0), Weather(0.1, 0.1, 0)).not_shown) == 2


@pytest.mark.parametrize("topic", AUDITED)
def test_topic_that_the_audit_had_nothing_to_compare_with_is_named(run: Run, topic: str) -> None:
    count = records_planned(PLAN)[topic]
    next(found for found in run.topics if found.topic == topic).confirmed = 0
    assert run.verdict().not_shown == [f"audit: 0 records of {topic} compared, {count:,} planned"]


def test_table_that_the_audit_did_not_see_is_named(run: Run) -> None:
    next(found for found in run.topics if found.topic == SALES).table_rows = -1
    count = records_planned(PLAN)[SALES]
    assert run.verdict().not_shown == [f"audit: 0 rows in the table of sales, {count:,} planned"]


def test_fault_that_the_audit_found_is_no_matter_of_the_plan(run: Run) -> None:
    run.lost = 1
    told = run.verdict()
    assert not told.sound
    assert told.not_shown == []


def test_report_is_told_what_the_screen_shows(run: Run) -> None:
    run.board.tallies["client"].retries_told = False
    run.board.tallies["ids"].duplicates = 9
    run.board.cut = 4
    told = running.run_of(run.board)
    names = [(face.name, face.label) for face in FACES]
    assert [(writers.face, writers.label) for writers in told.writers] == [*names, (FACE, LABEL)]
    found = {writers.face: (writers.retried, writers.duplicates, writers.killed) for writers in told.writers}
    assert found == {
        "commits": (0, 0, 0),
        "client": (-1, 0, 3),
        "headers": (0, 0, 0),
        "ids": (0, 9, len(FACES) - 3),
        FACE: (0, 0, 0),
    } | {face.name: (0, 0, 0) for face in FACES[4:]}
    assert (told.dropped, told.cut) == (1, 4)


# --- what the pipelines owe ----------------------------------------------------------------------------------


def test_plan_and_ledgers_of_a_whole_run_owe_the_same(run: Run) -> None:
    write_expected(run.plan, run.places.ledgers(), run.places.expected)
    lines = [msgspec.json.decode(line) for line in run.places.expected.read_bytes().splitlines()]
    counts = records_planned(run.plan)
    for state in ("sent", "confirmed"):
        names = [(line["topic"], line["id"]) for line in lines if line["state"] == state]
        assert len(set(names)) == len(names) == counts[SALES] + counts[REVENUE]
    orders = [order_of(3, share.producer, n, share.orders) for share in PLAN.shares for n in range(share.orders)]
    assert counts[SALES] == sum(order.paid for order in orders)
    assert counts[ORDERS] == counts[AUDIT] == counts[PAYMENTS] - 1 == len(orders)


def test_lines_of_what_is_owed_have_every_column_and_are_no_producers(run: Run) -> None:
    write_expected(run.plan, run.places.ledgers(), run.places.expected)
    columns = [column.split()[0].strip("`") for column in SCHEMA.split(", ")]
    for text in run.places.expected.read_bytes().splitlines():
        line = msgspec.json.decode(text)
        assert list(line) == columns
        assert [column for column in columns if line[column] is None] == ["time_ms"], "the charts leave it out by that"
    assert run.places.expected not in run.places.ledgers()


# --- how the command ends ------------------------------------------------------------------------------------


class WithoutSpark(running.Demo):
    """Writes under all kills of its kind, and then ends: no driver, and an audit that saw nothing."""

    async def _go(self) -> None:
        await self.write(await self.start())
        await self.close_the_day()
        self._audit = AuditResult([], self.lost, 0, 0, 0, 0, 0, 0)

    lost = 0


class WithoutSparkLosing(WithoutSpark):
    lost = 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("demo", "code"), [(WithoutSpark, exits.REFUSED), (WithoutSparkLosing, exits.DAMAGED)])
def test_run_that_showed_too_little_ends_with_one_and_a_fault_with_four(
    demo: type[running.Demo], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking := missing():
        pytest.skip(lacking)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(running, "Demo", demo)
    result = CliRunner().invoke(app, ["demo", "--scale", str(SCALE), "--seed", "3", "--report", str(tmp_path / "r")])
    assert result.exit_code == code, result.output
    lines = result.stdout.splitlines()
    told = lines[lines.index("this run did not show what it should:") + 1 :]
    assert told[:2] == ["  server: 4 times killed, 6 planned", "  Spark driver: 0 times killed, 1 planned"]
    assert sum(line.startswith("  audit: 0 ") for line in told) == len(AUDITED) + len(LANDED)
    assert list(tmp_path.iterdir()) == []
    assert ("the demo failed (seed 3): the run did not show" in result.stderr) == (code == exits.REFUSED)
