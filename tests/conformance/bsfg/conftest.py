"""The node that the suite asks: the one that the environment names, else a server of ours that is started for it."""

from collections.abc import Iterator

import pytest

from tests.cli.running import serving
from tests.conformance.bsfg.boundary import Boundary, from_environment


@pytest.fixture(scope="package")
def node() -> Iterator[Boundary]:
    named = from_environment()
    if named is not None:
        yield named
        return
    with serving("--in-memory", "--any-port", "--zone", "plant-a") as server:
        yield Boundary(server.url)
