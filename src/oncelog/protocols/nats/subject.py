"""Subjects: tokens between dots. `*` stands for one token, `>` for one or more at the end."""

from collections.abc import Iterable
from typing import Final

_FORBIDDEN: Final = frozenset(" \t\r\n\f\0")


def is_valid(subject: str) -> bool:
    """A subject that may be subscribed to: no empty token, no white space, `>` only at the end."""
    if not subject or not _FORBIDDEN.isdisjoint(subject):
        return False
    if subject[0] == "." or subject[-1] == "." or ".." in subject:
        return False
    return ">" not in subject or all(token != ">" for token in subject.split(".")[:-1])


def is_literal(subject: str) -> bool:
    """No token is a wildcard."""
    if "*" not in subject and ">" not in subject:
        return True
    return all(token not in ("*", ">") for token in subject.split("."))


def is_valid_literal(subject: str) -> bool:
    """A subject that may be published to."""
    return is_valid(subject) and is_literal(subject)


def matches(pattern: str, subject: str) -> bool:
    """Whether the literal `subject` is one of those that `pattern` stands for."""
    if pattern in (">", subject):
        return True
    return is_subset(subject, pattern)


def is_subset(subject: str, pattern: str) -> bool:
    """Whether every subject that `subject` stands for is one of those that `pattern` stands for."""
    tokens, wanted = subject.split("."), pattern.split(".")
    for at, want in enumerate(wanted):
        if want == ">":
            return len(tokens) > at
        if at >= len(tokens):
            return False
        have = tokens[at]
        if have == ">" or (have == "*" and want != "*"):
            return False
        if want not in ("*", have):
            return False
    return len(tokens) == len(wanted)


def overlaps(first: str, second: str) -> bool:
    """Whether some literal subject belongs to both."""
    one, other = first.split("."), second.split(".")
    for at in range(min(len(one), len(other))):
        left, right = one[at], other[at]
        if left == ">" or right == ">":
            return True
        if left != right and left != "*" and right != "*":
            return False
    return len(one) == len(other)


def any_matches(patterns: Iterable[str], subject: str) -> bool:
    """Whether one of the patterns stands for `subject`. No pattern at all stands for every subject."""
    empty = True
    for pattern in patterns:
        if matches(pattern, subject):
            return True
        empty = False
    return empty


def is_asset_name(name: str) -> bool:
    """A name that a stream or a consumer may have."""
    return (
        bool(name) and _FORBIDDEN.isdisjoint(name) and not any(mark in name for mark in ".*>\\/") and name.isprintable()
    )
