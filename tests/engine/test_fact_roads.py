"""Facts through the engine: known ids are found on every road, also when only the index still has them."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.core import batch as codec
from oncelog.core import facts
from oncelog.core.command import (
    Append,
    AppendStage,
    Columns,
    Command,
    Commit,
    CommitAppend,
    CreateTopic,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
)
from oncelog.core.facts import Fact, FactRecord
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    ApplicationDone,
    CommitConfirmed,
    Confirmed,
    EnvelopeInvalid,
    Outcome,
    StageDone,
    TopicDone,
)
from oncelog.core.rows import FOREVER, JCS, TopicConfig
from oncelog.engine.engine import Engine
from tests.engine.opening import done, opened

CONFIG = TopicConfig("application/json", FOREVER, id_zone="facts", digest=JCS)


def fact(text: str = '{"n": 1}', message_id: str = "m1") -> FactRecord:
    return facts.record_of(Fact(message_id, "plant", "office", 1_780_000_000_000, "pump:plant/1", "has_started", text))


def batch_of(*found: FactRecord) -> bytes:
    return codec.encode([(n, 1, one.key, one.value, one.headers) for n, one in enumerate(found)])


def ready(one: FactRecord) -> Command:
    return Append("f", 0, batch_of(one), 1)


def columns(one: FactRecord) -> Command:
    return Columns("f", 0, [one.value], keys=[one.key], headers=[one.headers])


def commit(one: FactRecord) -> Command:
    return Commit([CommitAppend("f", 0, batch_of(one), 1)])


@pytest.mark.parametrize("again", [ready, columns, commit])
@pytest.mark.parametrize("first", [ready, columns, commit])
def test_fact_is_stored_once_across_a_restart(
    tmp_path: Path, first: Callable[[FactRecord], Command], again: Callable[[FactRecord], Command]
) -> None:
    async def write() -> None:
        async with opened(tmp_path / "log") as engine:
            await done(engine, CreateTopic("f", 1, CONFIG), TopicDone)
            outcome = await engine.execute(first(fact()))
            assert isinstance(outcome, Confirmed | CommitConfirmed), outcome
            assert not outcome.duplicate

    async def once_more() -> None:
        async with opened(tmp_path / "log") as engine:
            # The topic is loaded by now, and of the ids only that of this other fact.
            await done(engine, columns(fact(message_id="m2")), Confirmed)
            for _ in range(2):
                outcome = await engine.execute(again(fact('{"n":1.0}')))
                assert isinstance(outcome, Confirmed | CommitConfirmed), outcome
                assert outcome.duplicate

    asyncio.run(write())
    asyncio.run(once_more())


async def published(engine: Engine, one: FactRecord, batch: int) -> Outcome:
    driver = await done(engine, OpenApplication("app"), ApplicationDone)
    stage = await done(engine, OpenStage("app", driver.fence, content_type="application/json"), StageDone)
    content = batch_of(one)
    await done(engine, AppendStage(stage.stage_id, 0, content, 1, content_digest(content)), StageDone)
    answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    item = PublishItem(stage.stage_id, "f", 0, 1)
    engine.publish(Publish([item], "app", driver.fence, "q", batch), answer.set_result)
    return await answer


def test_publish_into_a_fact_topic_reads_facts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await done(engine, CreateTopic("f", 1, CONFIG), TopicDone)
            assert isinstance(await published(engine, fact(), 0), CommitConfirmed)
            again = await done(engine, ready(fact()), Confirmed)
            assert (again.duplicate, again.first) == (True, 0)
            bad = FactRecord(b"k", b"{}", (), b"", b"", 0)
            assert isinstance(await published(engine, bad, 1), EnvelopeInvalid)

    asyncio.run(scenario())
