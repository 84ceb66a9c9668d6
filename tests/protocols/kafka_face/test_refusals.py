"""Every refusal of the core has a code of Kafka."""

from typing import Any

import msgspec
import pytest

from oncelog.core import outcome as o
from oncelog.core.txn import TxnRefusal
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.refusal_map import code_of, offset_code, produce_code, text_of, txn_code

KINDS = sorted(
    (kind for kind in o.Refusal.__subclasses__() if kind is not o.TxnRefused), key=lambda kind: kind.__name__
)


def made(kind: type[o.Refusal]) -> o.Refusal:
    values: dict[Any, Any] = {str: "x", int: 1, bytes: b"x", list[int]: [1]}
    given: dict[str, Any] = {field.name: values[field.type] for field in msgspec.structs.fields(kind) if field.required}
    return kind(**given)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_refusal_has_a_code_and_a_text(kind: type[o.Refusal]) -> None:
    refusal = made(kind)
    for code in (
        code_of(refusal),
        produce_code(refusal, 9),
        txn_code(refusal, knows_fenced=True),
        offset_code(refusal),
    ):
        assert isinstance(code, Code)
        assert code not in (Code.NONE, Code.UNKNOWN_SERVER_ERROR)
    assert text_of(refusal)


@pytest.mark.parametrize("reason", TxnRefusal)
def test_every_refusal_of_a_transaction_has_a_code(reason: TxnRefusal) -> None:
    refusal = o.TxnRefused(reason.name)
    assert isinstance(txn_code(refusal, knows_fenced=False), Code)
    assert txn_code(refusal, knows_fenced=False) != Code.PRODUCER_FENCED
    assert produce_code(refusal, 9) != Code.PRODUCER_FENCED
