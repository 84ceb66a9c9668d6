"""One row of a face's list of errors, as `oncelog explain` and docs/errors.md show it."""

from typing import NamedTuple


class Explained(NamedTuple):
    """An error that a face can answer."""

    face: str
    code: str
    """As it stands in an answer: a word over HTTP, a number over Kafka and NATS."""
    status: str
    """What else names it: the status over HTTP, the name of the code over Kafka; empty if nothing does."""
    meaning: str
    """What was wrong; words in angle brackets stand for the values of the case."""
    what_to_do: str
