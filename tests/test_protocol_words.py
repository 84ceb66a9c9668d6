"""No word of a protocol stands in the core, the engine or the storage, but for those that are settled by the design.

Names and texts are looked at; comments and docstrings may explain whatever they need to.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "oncelog"
LAYERS = ("core", "engine", "storage")

WORD = re.compile(r"http|kafka|jetstream|bsfg|etag|(?<![a-z])nats(?![a-z])", re.IGNORECASE)

SETTLED = (
    # Scopes of names: a producer or consumer of one face never meets one of another.
    re.compile(r"""f?"(kafka|nats|bsfg):?(\{.*)?"|"(kafka|nats|bsfg)":?"""),
    re.compile(r"_KAFKA|f\"\{_KAFKA\}\{producer_id\}\"|kafka_name"),
    # A topic has one JetStream name, and the core keeps these names unique.
    re.compile(r"_?nats_names?|NATS_NAME|jetstream_name|\"nats_names?(_taken)?\"|\"a JetStream name is .*"),
    # Bounds of the record batch's own fields: 16-bit epochs and sequences that wrap at 31 bits.
    re.compile(r"KAFKA_(FENCE_)?EPOCH_MAX|KAFKA_SEQUENCE_MAX"),
    # One of the three ways to read.
    re.compile(r"KAFKA_COMMITTED"),
    # Headers that a fact record carries.
    re.compile(r"\"bsfg\.[a-z_]*\""),
)


def protocol_words(source: str) -> Iterator[tuple[int, str]]:
    """(line, name or text) of each that is not settled."""
    explained: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            explained.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.NAME, tokenize.STRING) or token.start[0] in explained:
            continue
        if WORD.search(token.string) and not any(allowed.fullmatch(token.string) for allowed in SETTLED):
            yield token.start[0], token.string


def test_no_protocol_word_stands_below_the_protocols() -> None:
    modules = sorted(path for layer in LAYERS for path in (PACKAGE / layer).rglob("*.py"))
    assert modules
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {word}"
        for path in modules
        for line, word in protocol_words(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("source", ["HTTP_READ_BYTES = 1", 'status = "http"', "def kafka_epoch(): ...", "is_nats = 1"])
def test_scan_finds_a_protocol_word(source: str) -> None:
    assert list(protocol_words(source))


@pytest.mark.parametrize(
    "source", ['"""As HTTP has it."""', "x = 1  # as in Kafka", 'scope = "kafka:"', "notation = 1"]
)
def test_scan_lets_settled_and_other_words_pass(source: str) -> None:
    assert not list(protocol_words(source))
