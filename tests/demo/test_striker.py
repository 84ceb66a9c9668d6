"""The striker at the end of a run: what was due is carried out, what never came due is left, and the server lives."""

import asyncio
from pathlib import Path

from oncelog.client import AsyncClient
from oncelog.demo.board import Board, Flow
from oncelog.demo.plan import SERVER, Moment, Plan, Strike
from oncelog.demo.server import Server
from oncelog.demo.striker import Striker


def strike(at: int) -> Strike:
    return Strike(Moment.BATCHES, at, 0.0, SERVER, 0.0)


async def struck(folder: Path, plan: Plan) -> int:
    """How often the server was killed if the run ends while the first strike goes on."""
    flow = Flow("join")
    board = Board(plan.seed, plan.scale, {}, {"join": flow})
    killed = asyncio.Event()
    board.on_event = lambda _time, _text: killed.set()
    server = Server(folder)
    striker = Striker(plan, board, server, {}, None, lambda _kind, _label: None)
    try:
        await server.start()
        flow.batches = 2
        striking = asyncio.create_task(striker.run(Moment.BATCHES))
        await killed.wait()
        assert board.server_kills == 1
        striker.end()
        await striking
        async with AsyncClient(server.url) as client:
            await client.create_topic("alive", partitions=1)
    finally:
        await server.close()
    return board.server_kills


def test_strike_that_was_due_comes_also_if_the_one_before_it_outlasts_the_run(tmp_path: Path) -> None:
    plan = Plan(1, 1.0, (), (strike(1), strike(2), strike(3)))
    assert asyncio.run(struck(tmp_path / "data", plan)) == 2, "two were due, the third never came due"
