"""A client as anybody would write it, with the standard library: one request at a time, sent again until answered.

It knows nothing of the log but this: a request that got no answer is repeated byte for byte, claim included. That is
the whole recipe, in any language.
"""

import http.client
import time
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from oncelog.errors import OncelogError

ANSWER_WITHIN_S: Final = 10.0
"""Silence after which a connection counts as lost. An answer takes milliseconds."""

GIVE_UP_S: Final = 90.0
"""No answer at all for so long: the server is gone for good. A restart takes seconds."""

PAUSE_S: Final = 0.02
PAUSE_MAX_S: Final = 0.5

RETRY_STATUSES: Final = frozenset((429, 503, 507))
"""The server could not do it now, and has done nothing."""


class Refused(OncelogError):
    """The server said no to a correct request. That must not happen here."""


class NoAnswer(OncelogError):
    """Nobody answered for too long."""


class Reply(NamedTuple):
    """A success. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    attempts: int

    @property
    def duplicate(self) -> bool:
        """It was written before, by an earlier attempt or an earlier life."""
        return self.headers.get("stream-duplicate") == "true"

    @property
    def next_offset(self) -> int:
        """Behind the record that was appended."""
        return int(self.headers["stream-next-offset"])


class Insistent:
    """One connection after another."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Reply:
        """The answer, however often it takes. The body is JSON, or becomes it. Raises Refused and NoAnswer."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        told = {"Content-Type": "application/json", **(headers or {})}
        give_up = time.monotonic() + GIVE_UP_S
        pause_s = PAUSE_S
        attempts = 0
        while True:
            attempts += 1
            try:
                status, got, answer = self._once(path, data, told)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reason = str(error)
            else:
                if status < 300:
                    return Reply(status, got, answer, attempts)
                reason = f"{status} {answer[:300].decode(errors='replace')}"
                if status not in RETRY_STATUSES:
                    raise Refused(f"POST {path}: {reason}")
            if time.monotonic() > give_up:
                raise NoAnswer(f"POST {path}: no answer within {GIVE_UP_S:g} s, {attempts} attempts: {reason}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def close(self) -> None:
        """Drops the connection; the next request makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _once(self, path: str, data: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address, timeout=ANSWER_WITHIN_S)
        self._connection.request("POST", path, data, dict(headers))
        answer = self._connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
