"""One server that most tests share: each has topics of its own in it."""

import itertools
from collections.abc import Iterator

import pytest

from tests.servers.running import Running, running

_numbers = itertools.count()


@pytest.fixture(scope="session")
def shared() -> Iterator[Running]:
    """In memory, default settings but for the waits of live reads."""
    with running(long_poll_ms=200, early_hold_ms=300) as server:
        yield server


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def text(shared: Running, topic: str) -> str:
    """The path of a stream of text that is there and empty."""
    path = f"/v1/stream/{topic}"
    assert shared.ask("PUT", path, headers={"Content-Type": "text/plain"}).status == 201
    return path
