"""The server that a verb talks to: `--url`, one request after another, and what its failures mean for the exit code.

Everything the verbs send may be sent twice: reads change nothing, a stream that is there is not made again, and writes
carry a claim. So a request that got no answer is sent again for a while, without asking (`oncelog.client.calls`).
"""

import asyncio
import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from oncelog.cli import exits
from oncelog.cli.live_check import RawPage, shaped
from oncelog.cli.patience import PatientCaller
from oncelog.cli.screen import counted, end
from oncelog.client.calls import Caller, Timeouts, decoded
from oncelog.client.connection import connect, parse_address, with_scheme
from oncelog.client.dialect import confirmed
from oncelog.client.errors import (
    AnswerUnreadable,
    ClientError,
    ConnectionLost,
    Damaged,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unreachable,
)
from oncelog.client.models import TopicInfo
from oncelog.client.wire import BATCHES, Answer, topic_path

NO_TLS: Final = re.compile(r"\[SSL: (?:WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG)\]")
"""What OpenSSL says of an answer that is no TLS, in one version or another."""


URL: Final = "http://127.0.0.1:4437"
UrlOption = Annotated[
    str,
    typer.Option(
        "--url", envvar="ONCELOG_URL", metavar="URL", help="The server.", show_envvar=True, callback=with_scheme
    ),
]

LISTED: Final = "oncelog streams lists those that are there"
"""What to do where a stream is missing that is not to be made."""

TIMEOUTS: Final = Timeouts(connect_s=5, silence_s=30, request_s=60)
Query = Mapping[str, str | int | None]


class Remote:
    """A server, asked one thing at a time. Made by `reached`."""

    def __init__(self, url: str, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._caller = runner.run(_caller(url))

    def get(self, path: str, query: Query) -> Any:
        """The JSON document at `path`."""
        return decoded(self.request("GET", path, query), Any)

    def raw(self, topic: str, partition: int, offset: int) -> RawPage:
        """Raw batches from `offset` on."""
        query: Query = {"partition": partition, "offset": offset}
        answer = self.request("GET", stream_path(topic), query, {"Accept": BATCHES})
        next_offset = answer.number("stream-next-offset")
        if next_offset < 0:
            raise AnswerUnreadable("the answer to a read does not say where to go on")
        return RawPage(answer.body, next_offset)

    def append(self, topic: str, partition: int, headers: Mapping[str, str | int], body: bytes) -> Answer:
        """Stores one batch under the claim in `headers`. Raises AnswerUnreadable if the answer does not say so."""
        return confirmed(self.request("POST", stream_path(topic), {"partition": partition}, headers, body))

    def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        headers: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Sends until there is an answer or it takes too long. Raises Refused, Unreachable, OutcomeUnknown. NotFound is
        the server's own word alone: a page that a proxy does not have says nothing of a stream."""
        try:
            return self._runner.run(self._caller.call(method, path, query, headers=headers, body=body))
        except NotFound as missing:
            if missing.has_code:
                raise
            foreign = Refused(missing.status, missing.code, missing.detail, missing.members)
            foreign.maybe_done = missing.maybe_done
            raise foreign from None

    def close(self) -> None:
        """Lets go of the connection."""
        self._runner.run(self._caller.close())


async def _caller(url: str) -> Caller:
    return PatientCaller(url, TIMEOUTS)


async def probe(url: str) -> None:
    """Reaches the server once before any request: a wrong address is reported at once, not after many attempts."""
    try:
        address = parse_address(url)
    except ValueError as error:
        end(exits.USAGE, str(error))
    try:
        connection = await connect(address, TIMEOUTS.connect_s)
    except ConnectionLost as lost:
        raise Unreachable(str(lost)) from None
    await connection.close()


def stream_path(topic: str) -> str:
    return f"/v1/stream/{topic_path(topic)}"


@contextlib.contextmanager
def reached(url: str) -> Iterator[Remote]:
    """A server to talk to; what goes wrong with it ends the verb with one line and the exit code for it."""
    with failures_told(url), asyncio.Runner() as runner:
        runner.run(probe(url))
        remote = Remote(url, runner)
        try:
            yield remote
        finally:
            remote.close()


@contextlib.contextmanager
def failures_told(url: str) -> Iterator[None]:
    """One line and one exit code for each thing that can go wrong with a server."""
    try:
        yield
    except ClientError as error:
        end(*failure(url, error))


def failure(url: str, error: ClientError) -> tuple[int, str]:
    """What went wrong, as (exit code, words)."""
    match error:
        case Unreachable() if url.startswith("https:") and NO_TLS.search(str(error)):
            plain = url.replace("https:", "http:", 1)
            return exits.UNREACHABLE, f"cannot reach {url}: what answers there speaks no TLS (is it {plain}?)"
        case Unreachable():
            return exits.UNREACHABLE, f"cannot reach {url}: {error} (does oncelog serve run there?)"
        case OutcomeUnknown():
            return exits.UNREACHABLE, f"{url} gave no answer, the write may have happened: {error}"
        case Refused() if not error.has_code:
            if error.detail:
                return exits.REFUSED, f"{url} answered {error.status}: {error.detail}"
            return exits.REFUSED, f"is {url} an oncelog server? it answered {error.status} and said no more"
        case Refused():
            hint = error.members.get("hint")
            code = exits.DAMAGED if isinstance(error, Damaged) else exits.REFUSED
            return code, f"{error.detail or error}" + (f" ({hint})" if hint else "")
        case AnswerUnreadable():
            return exits.UNREACHABLE, f"is {url} an oncelog server? {error}"
    return exits.REFUSED, str(error)


def end_if_missing(log: Remote, topic: str, partition: int, hint: str) -> TopicInfo:
    """The settings of the topic; ends the verb if the topic or the partition does not exist."""
    try:
        settings = shaped(log.get(f"/v1/topics/{topic_path(topic)}", {}), TopicInfo)
    except NotFound:
        end(exits.REFUSED, f"there is no stream {topic!r}" + (f" ({hint})" if hint else ""))
    if partition >= settings.partitions:
        there = counted(settings.partitions, "partition")
        end(exits.REFUSED, f"there is no partition {partition} of {topic!r}: it has {there}, and they count from 0")
    return settings
