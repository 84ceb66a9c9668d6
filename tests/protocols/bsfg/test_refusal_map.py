"""Every refusal of the core has its Connect code."""

from collections.abc import Iterator

import pytest

from oncelog.core import outcome as o
from oncelog.protocols.bsfg import connect
from oncelog.protocols.bsfg.catalogue import explained
from oncelog.protocols.bsfg.refusal_map import CODES, error_of


def every_refusal(base: type[o.Refusal] = o.Refusal) -> Iterator[type[o.Refusal]]:
    for kind in base.__subclasses__():
        yield kind
        yield from every_refusal(kind)


def test_the_map_is_total_and_has_nothing_else() -> None:
    assert set(CODES) == set(every_refusal())
    assert set(CODES.values()) <= set(connect.STATUS)


@pytest.mark.parametrize(
    ("refusal", "code", "says"),
    [
        (o.TooLarge("batch bytes", 10, 11), "invalid_argument", "limit 10"),
        (o.Stopping(), "unavailable", "send the same request again"),
        (o.Damaged("a batch", "0001.seg", 512), "data_loss", "0001.seg"),
    ],
)
def test_an_error_names_the_numbers(refusal: o.Refusal, code: str, says: str) -> None:
    error = error_of(refusal, "the fact was not appended")
    assert error.code == code
    assert "the fact was not appended" in error.message
    assert says in error.message


def test_every_code_that_a_refusal_has_is_explained() -> None:
    assert set(CODES.values()) <= {row.code for row in explained()}
