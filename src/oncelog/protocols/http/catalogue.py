"""Every code that the HTTP face can answer, with its meaning and what to do about it: for people who look one up."""

import re
from collections.abc import Iterator
from typing import Final

from oncelog.protocols.explained import Explained
from oncelog.protocols.http.hints import HINTS
from oncelog.protocols.http.refusal_map import BELOW, RULES, Rule

_FIELD: Final = re.compile(r"\{(\w+)(?:![rs])?\}")


def explained() -> Iterator[Explained]:
    """All of them, by code."""
    found = [_of_rule(rule.code or kind.code, rule) for kind, rule in RULES.items()]
    found.append(_of_rule(BELOW.code, BELOW))
    found += [Explained("http", code, "", code.replace("_", " "), hint) for code, hint in HINTS.items()]
    seen: set[str] = set()
    for row in sorted(found, key=lambda row: (row.code, not row.status)):
        if row.code not in seen:
            seen.add(row.code)
            yield row


def _of_rule(code: str, rule: Rule) -> Explained:
    return Explained("http", code, str(rule.status), _readable(rule.detail), _readable(rule.hint))


def _readable(template: str) -> str:
    """A template of a message with names in angle brackets where its values go."""
    return _FIELD.sub(lambda field: f"<{field[1].replace('_', ' ')}>", template)
