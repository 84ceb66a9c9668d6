"""What takes more than one command, or none: cuts, listings, receipts, publishes by id, health, metrics."""

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST

from oncelog import __version__, limits
from oncelog.core.command import GetReceipt
from oncelog.core.flat import Producer
from oncelog.core.outcome import Outcome, ReceiptFound, Refusal, TopicMissing
from oncelog.core.query import producer_found
from oncelog.core.txn import Txn
from oncelog.engine.listing import ListedCursor, Page
from oncelog.engine.provenance import WrittenBy
from oncelog.engine.seek import Stood
from oncelog.protocols.http import actions, admin, answers
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.txns import txn_row
from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext
from oncelog.servers.metrics import Now, exposition
from oncelog.servers.room import free_bytes, why_held, why_refused

Answer = Callable[[bytes], None]


class Asks:
    """One method per question."""

    def __init__(self, context: FaceContext, counts: Counts) -> None:
        self._context = context
        self._engine = context.engine
        self._counts = counts

    def answer(self, action: actions.Action, answer: Answer) -> None:
        """Answer, now or once what is told is durable."""
        match action:
            case actions.Health():
                answer(self._health())
            case actions.Metrics():
                answer(self._metrics())
            case actions.Cut():
                answer(self._cut(action))
            case actions.Stood():
                self._stood(action, answer)
            case actions.ListStreams():
                answer(self._streams(action))
            case actions.ListProducers():
                self._producers(action, answer)
            case actions.ListCursors():
                self._cursors(action, answer)
            case actions.ListTxns():
                self._txns(action, answer)
            case actions.Receipt():
                self._receipt(action, answer)
            case actions.PublishNamed():
                self._publish(action, answer)
            case _:
                raise AssertionError(f"not a question: {action}")

    def _health(self) -> bytes:
        """Whoever gets it knows that the server lives, so it is 200 in any case: to start anew makes no room on a disk,
        and to be taken out of service would end the reads, too."""
        statistics = self._engine.statistics()
        refused, held = why_refused(statistics), why_held(statistics)
        reason = refused or held
        return answers.json(
            {
                "status": "no_room" if refused else "held" if held else "ok",
                "writes": "refused" if refused else "held" if held else "accepted",
                "reason": reason,
                "durability": statistics.durability,
                "version": __version__,
                "entry": statistics.entry,
                "clock_ahead_ms": max(0, statistics.clock_skew_ns // 1_000_000),
            }
        )

    def _metrics(self) -> bytes:
        statistics, context = self._engine.statistics(), self._context
        now = Now(why_refused(statistics) is not None, free_bytes(context.journal))
        text = exposition(statistics, context.faces, now)
        return answers.full(200, CONTENT_TYPE_LATEST, text, b"Cache-Control: no-store\r\n")

    def _cut(self, action: actions.Cut) -> bytes:
        cut = self._engine.lookups.cut(action.topics)
        streams = [
            {
                "topic": found.topic,
                "partition": found.partition,
                "floor": found.stream.floor,
                "stable": found.stream.stable,
                "tail": found.stream.tail,
                "closed": found.stream.closed,
                "created_ms": found.created_ns // 1_000_000,
            }
            for found in cut.streams
        ]
        return answers.json({"entry": cut.entry_number, "time_ms": cut.time_ns // 1_000_000, "streams": streams})

    def _stood(self, action: actions.Stood, answer: Answer) -> None:
        def told(found: list[Stood] | Refusal) -> None:
            if isinstance(found, Refusal):
                answer(problem_of(found))
                return
            streams = [
                {
                    "topic": stood.topic,
                    "partition": stood.partition,
                    "offset": stood.offset,
                    "is_floor": stood.is_floor,
                    "floor": stood.stream.floor,
                    "stable": stood.stream.stable,
                }
                for stood in found
            ]
            answer(answers.json({"streams": streams}))

        time_ns = action.time_ms * 1_000_000
        self._engine.reads.stood(action.topics, told, entry=action.entry, time_ns=time_ns)

    def _streams(self, action: actions.ListStreams) -> bytes:
        page = self._engine.lookups.topics(action.prefix, action.after, action.limit)
        rows: list[dict[str, object]] = []
        next_ = page.next
        last = ""
        for name, topic in page.rows:
            if rows and len(rows) + len(topic.stream_ids) > limits.HTTP_LIST_MAX:
                next_ = last  # a page is by topic, and topics may have thousands of partitions
                break
            last = name
            for partition, stream_id in enumerate(topic.stream_ids):
                stream = self._engine.lookups.stream(stream_id)
                if stream is not None:
                    rows.append(
                        {
                            "topic": name,
                            "partition": partition,
                            "content_type": topic.config.content_type,
                            "floor": stream.floor,
                            "stable": stream.stable,
                            "tail": stream.tail,
                            "closed": stream.closed,
                            "created_ms": topic.created_ns // 1_000_000,
                            "time_ms": stream.time_ns // 1_000_000,
                        }
                    )
        return admin.listed("streams", rows, next_)

    def _producers(self, action: actions.ListProducers, answer: Answer) -> None:
        topic = self._engine.lookups.topic(action.topic)
        if topic is None or action.partition >= len(topic.stream_ids):
            answer(problem_of(TopicMissing(action.topic, action.partition)))
            return

        def told(page: Page[Producer]) -> None:
            rows = [admin.producer_row(key[1], producer_found(row)) for key, row in page.rows]
            answer(admin.listed("producers", rows, page.next and page.next[1]))

        stream_id = topic.stream_ids[action.partition]
        self._engine.lookups.producers(stream_id, action.prefix, action.after, action.limit, told)

    def _cursors(self, action: actions.ListCursors, answer: Answer) -> None:
        def told(listed: list[ListedCursor], next_: tuple[str, int] | None) -> None:
            rows = [admin.cursor_row(*found) | self._left(found) for found in listed]
            answer(admin.listed("cursors", rows, None if next_ is None else f"{next_[0]}/{next_[1]}"))

        self._engine.lookups.cursors(action.prefix, action.after, action.limit, told)

    def _txns(self, action: actions.ListTxns, answer: Answer) -> None:
        lookups = self._engine.lookups

        def on_page(page: Page[Txn]) -> None:
            rows = [txn_row(row, lookups.name_of) for _, row in page.rows]
            answer(admin.listed("txns", rows, page.next))

        lookups.txns(action.prefix, action.after, action.limit, on_page)

    def _left(self, found: ListedCursor) -> dict[str, object]:
        """How much is left for a consumer."""
        left = self._engine.left(found.topic, found.partition, found.cursor.frontier)
        return {"lag": left.records, "lag_ms": left.oldest_ms}

    def _publish(self, action: actions.PublishNamed, answer: Answer) -> None:
        def told(outcome: Outcome) -> None:
            self._counts.other(outcome)
            answer(action.render(outcome))

        self._engine.publish(action.command, told)

    def _receipt(self, action: actions.Receipt, answer: Answer) -> None:
        engine = self._engine

        def found(outcome: Outcome) -> None:
            if isinstance(outcome, Refusal):
                answer(problem_of(outcome))
                return
            assert isinstance(outcome, ReceiptFound)

            def told(producer: WrittenBy | Refusal | None) -> None:
                # Ids of a zone may lie in another topic than the one asked.
                topic, partition = engine.lookups.name_of(outcome.stream_id)
                if isinstance(producer, Refusal):
                    self._counts.other(producer, topic, partition)
                    answer(problem_of(producer))
                    return
                answer(admin.receipt_answer(topic, partition, outcome, producer))

            if outcome.gone:
                told(None)
            else:
                engine.reads.who_wrote(outcome.stream_id, outcome.first, told)

        engine.submit(GetReceipt(action.topic, action.partition, action.message_id), found)
