"""Listings of consumers and txns: rows newer than the index over the index's, page by page."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.command import AddToTxn, CommitOffsets, CursorMove, DeleteCursor, InitProducer
from oncelog.core.outcome import CursorDone, OffsetsCommitted, TxnDone
from oncelog.core.txn import TxnState
from oncelog.engine.engine import Engine
from tests.engine.opening import done, make_topic, opened

NAMES = ["kafka:a", "kafka:ab", "kafka:b", "nats:a"]


async def fill(engine: Engine) -> None:
    for topic in ("t", "u"):
        await make_topic(engine, topic)
        moves = [CursorMove(name, topic, 0, 7) for name in NAMES]
        assert await done(engine, CommitOffsets(moves), OffsetsCommitted) == OffsetsCommitted([None] * len(NAMES))
    for txn_id in ("x1", "x2", "y1"):
        who = await done(engine, InitProducer(txn_id), TxnDone)
    await done(engine, AddToTxn("y1", who.producer_id, who.epoch, [("t", 0)]), TxnDone)


async def gone(engine: Engine) -> None:
    """Newer than what the index has after a restart."""
    await done(engine, DeleteCursor("kafka:ab", "t", 0), CursorDone)
    await done(engine, DeleteCursor("kafka:ab", "u", 0), CursorDone)
    await done(engine, CommitOffsets([CursorMove("kafka:c", "u", 0, 1)]), OffsetsCommitted)
    await done(engine, InitProducer("x3"), TxnDone)


def pages(ask: Any, first: Any, limit: int) -> list[Any]:
    """Every row of a listing. The gate is open: nothing is being written."""
    rows: list[Any] = []
    place = first
    while place is not None:
        told: list[Any] = []
        ask(place, limit, lambda *page: told.extend(page))  # noqa: B023
        found, place = told if len(told) == 2 else told[0]
        assert len(found) <= limit
        rows += found
    return rows


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_consumers_and_txns_are_listed_page_by_page(tmp_path: Path, limit: int) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await fill(engine)
        async with opened(tmp_path / "log") as engine:
            await gone(engine)
            look = engine.lookups
            names = pages(lambda after, n, on: look.consumer_names("kafka:", after, n, on), "", limit)
            assert [name for name, _ in names] == ["kafka:a", "kafka:b", "kafka:c"]

            def consumer(after: Any, n: int, on: Any) -> None:
                look.consumer("kafka:a", after if isinstance(after, int) else after[1], n, on)

            rows = pages(consumer, -1, limit)
            assert [(row.name, row.topic, row.cursor.frontier) for row in rows] == [
                ("kafka:a", "t", 7),
                ("kafka:a", "u", 7),
            ]
            txns = pages(lambda after, n, on: look.txns("", after, n, on), "", limit)
            assert [txn_id for txn_id, _ in txns] == ["x1", "x2", "x3", "y1"]
            assert [txn.state for _, txn in txns] == [TxnState.EMPTY] * 3 + [TxnState.ONGOING]
            assert [txn_id for txn_id, _ in pages(lambda a, n, on: look.txns("y", a, n, on), "", limit)] == ["y1"]

    asyncio.run(scenario())
