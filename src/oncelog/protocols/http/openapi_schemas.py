"""Schemas of the OpenAPI description: one per thing that comes or goes, built from small functions.

What we send has every member; what we take may lack some and has no unknown ones. Words and members are those of
`docs/protocols/http.md`.
"""

from typing import Any, Final

from oncelog import limits

Schema = dict[str, Any]


def text(description: str = "", **more: Any) -> Schema:
    return {"type": "string", **({"description": description} if description else {}), **more}


def number(description: str = "", low: int | None = 0, **more: Any) -> Schema:
    bound = {} if low is None else {"minimum": low}
    return {"type": "integer", **bound, **({"description": description} if description else {}), **more}


def flag(description: str = "", **more: Any) -> Schema:
    return {"type": "boolean", **({"description": description} if description else {}), **more}


def list_(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def told(**properties: Schema) -> Schema:
    """An object that we send: every member is there."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def taken(required: str, **properties: Schema) -> Schema:
    """An object that we take: some members may be absent, none may be unknown."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


NEXT: Final = {"type": ["string", "null"], "description": "The `after` of the next page; null behind the last."}
_BASE64: Final = text(contentEncoding="base64")
_BYTES: Final[Schema] = {"anyOf": [text("As UTF-8."), taken("base64", base64=_BASE64)]}
_SETTINGS: Final = {
    "content_type": text("Of every record; printable ASCII."),
    "dedupe_floor_ms": number("How long ids and producers outlive their record; -1 is for ever.", low=-1),
    "duplicate_window_ms": number("If not 0, ids are remembered for exactly this long instead."),
    "retention_ms": number("If not 0, records go once their append is so long ago."),
    "retention_bytes": number("If not 0, the oldest records of a partition go; at least so many stored bytes stay."),
    "retention_records": number("If not 0, so many records of a partition stay, and the oldest go."),
}
PLACE: Final = {"topic": text(), "partition": number(maximum=limits.PARTITIONS_MAX - 1, default=0)}
_STANDING: Final = {
    "floor": number("The first offset that is there."),
    "stable": number("Readers see what is below."),
    "tail": number("The next offset to be given out."),
    "closed": flag("Nothing can follow."),
}
_CREATED: Final = number("When the topic was made. One that is deleted and made again has another time.")
_STAGE: Final = {
    "stage_id": number(),
    "count": number("Records that it holds."),
    "expires_ms": number("When it is dropped unless it is published."),
    "duplicate": flag("This batch was there already."),
}
PRODUCER: Final = {
    "name": text(),
    "scope": text(enum=["http", "x", "kafka", "commit"]),
    "epoch": number(),
    "last_sequence": number("-1: none.", low=-1),
    "first": number("Of its last batch; -1: none, or no longer known.", low=-1),
    "next": number("Behind its last batch; -1: none, or no longer known.", low=-1),
    "used_ms": number(),
}

_TXN_HOLDER: Final = {"producer_id": number(), "epoch": number()}

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": {
        "type": "object",
        "description": "RFC 9457. `code` is stable; the numbers of a refusal stand in members of their own. "
        "One that is not known is left out.",
        "properties": {
            "type": text("urn:oncelog:<code>"),
            "title": text(),
            "status": number(low=400),
            "code": text("For programs: sequence_gap, topic_missing, too_large, …"),
            "detail": text("For people."),
            "hint": text("What to do about it; never empty."),
            "retryable": flag("The same request can succeed later; nothing was done."),
        },
        "required": ["type", "title", "status", "code", "detail", "hint", "retryable"],
    },
    "Record": taken(
        "",
        value=text("The value as text. A record has one of `value`, `json` and `base64`."),
        json={"description": "The value as JSON, kept byte for byte."},
        base64=text("The value as bytes.", contentEncoding="base64"),
        key=or_null(_BYTES),
        headers={"type": "object", "additionalProperties": or_null(_BYTES)},
        timestamp_ms=number("0: the time of the append."),
    ),
    "Condition": {
        "description": "Checked against the streams as they are at the instant of the commit.",
        "anyOf": [
            taken("kind topic tail", kind=text(enum=["expected_tail"]), **PLACE, tail=number(low=None)),
            taken("kind topic", kind=text("Nobody ever wrote to it.", enum=["stream_new"]), **PLACE),
            taken(
                "kind name topic frontier",
                kind=text("0 also if there is no such cursor.", enum=["cursor_equals"]),
                name=text(),
                **PLACE,
                frontier=number(low=None),
            ),
            taken(
                "kind topic message_id present",
                kind=text(enum=["id"]),
                **PLACE,
                message_id=text(),
                present=flag(),
            ),
            taken(
                "kind topic producer epoch",
                kind=text(enum=["epoch_equals"]),
                **PLACE,
                producer=text("With its scope: http:shop."),
                epoch=number("-1: the producer is unknown.", low=-1),
            ),
        ],
    },
    "CursorMove": taken(
        "name topic frontier",
        name=text(),
        **PLACE,
        frontier=number("Everything below is processed."),
        metadata=text(default=""),
        pinned=flag("Nothing from the frontier on may be trimmed.", default=False),
    ),
    "Commit": taken(
        "",
        commit_id=text("Retries are recognised by it.", minLength=1),
        producer=or_null(taken("name epoch sequence", name=text(minLength=1), epoch=number(), sequence=number())),
        appends=list_(
            taken(
                "topic records",
                **PLACE,
                message_id=text("Unique in its stream, whoever sends it.", minLength=1),
                records=list_(ref("Record"), minItems=1),
            )
        ),
        conditions=list_(ref("Condition")),
        cursors=list_(ref("CursorMove")),
    ),
    "Committed": told(
        outcome=list_(
            told(**PLACE, first=number(), next=number()),
            description="One element per append; none if it is a duplicate so old that it is no longer known.",
        ),
        duplicate=flag("It had happened before; this is the first outcome again."),
        producer={
            **or_null(told(epoch=number(), sequence=number("The highest that was accepted."))),
            "description": "Null without a producer, and in a duplicate whose producer's own claim is refused.",
        },
    ),
    "Receipt": told(
        **PLACE,
        first=number(),
        next=number(),
        digest=text("Of the content, in hex."),
        time_ms=number("When the id was taken, with its record; once that is removed, when the id was last sent."),
        removed=flag("The record is gone; its id is still remembered."),
        producer=or_null(told(name=text("With its scope."), epoch=number(), sequence=number())),
    ),
    "Producer": told(**PRODUCER),
    "Stream": told(
        **PLACE, content_type=text(), **_STANDING, created_ms=_CREATED, time_ms=number("Of its last change.")
    ),
    "Standing": told(**PLACE, **_STANDING),
    "CutStream": told(**PLACE, **_STANDING, created_ms=_CREATED),
    "Stood": told(
        **PLACE,
        offset=number("What lies below was there."),
        is_floor=flag("The place may lie below, among what was trimmed."),
        floor=number("Now."),
        stable=number("Now."),
    ),
    "Cursor": told(
        name=text(),
        **PLACE,
        frontier=number("Everything below is processed."),
        confirmed=list_(
            list_(number(), minItems=2, maxItems=2),
            description="[first, next) above the frontier that are processed too.",
        ),
        metadata=text(),
        pinned=flag(),
        used_ms=number(),
    ),
    "CursorListed": told(
        name=text(),
        **PLACE,
        frontier=number("Everything below is processed."),
        confirmed=list_(
            list_(number(), minItems=2, maxItems=2),
            description="[first, next) above the frontier that are processed too.",
        ),
        metadata=text(),
        pinned=flag(),
        used_ms=number(),
        lag=number("Committed records that are not processed."),
        lag_ms=number("The age of the oldest of them."),
    ),
    "Txn": told(
        txn_id=text(),
        state=text("Kafka's states in lower case, as in `ongoing` or `complete_commit`."),
        **_TXN_HOLDER,
        timeout_ms=number(),
        started_ms={"type": ["integer", "null"], "description": "Of an open one."},
        ends_ms={"type": ["integer", "null"], "description": "Of an open one: when the server aborts it."},
        updated_ms=number(),
        groups=list_(text()),
        partitions=list_(told(topic=text(), partition=number())),
        holds=list_(
            told(topic=text(), partition=number(), offset=number()),
            description="Streams whose committed readers wait for it, and from where.",
        ),
    ),
    "TxnHolder": told(**_TXN_HOLDER),
    "TxnAppended": told(first=number(), next=number(), duplicate=flag()),
    "TxnBegin": taken(
        "",
        timeout_ms={"type": ["integer", "null"]},
        producer_id=number(low=-1, default=-1),
        epoch=number(low=-1, default=-1),
    ),
    "TxnPlace": taken("topic", topic=text(), partition=number(default=0)),
    "TxnPartitions": taken("producer_id epoch partitions", **_TXN_HOLDER, partitions=list_(ref("TxnPlace"))),
    "TxnGroups": taken("producer_id epoch groups", **_TXN_HOLDER, groups=list_(text())),
    "TxnOffset": taken(
        "topic offset",
        topic=text(),
        offset=number(),
        partition=number(default=0),
        metadata={"type": ["string", "null"]},
    ),
    "TxnOffsets": taken(
        "producer_id epoch group offsets", **_TXN_HOLDER, group=text(), offsets=list_(ref("TxnOffset"))
    ),
    "TxnAppend": taken(
        "producer_id epoch topic sequence records",
        **_TXN_HOLDER,
        topic=text(),
        sequence=number("Counts the records of this producer in this partition, from 0 on in an epoch."),
        records=list_(ref("Record"), minItems=1),
        partition=number(default=0),
    ),
    "TxnEnd": taken("producer_id epoch commit", **_TXN_HOLDER, commit=flag()),
    "TxnAbort": taken("producer_id epoch", **_TXN_HOLDER),
    "CursorPut": taken("frontier", frontier=number(), metadata=text(default=""), pinned=flag(default=False)),
    "Topic": told(name=text(), partitions=number(low=1), **_SETTINGS, id_zone=text(), created_ms=number()),
    "TopicPut": taken(
        "",
        partitions=number(low=1, maximum=limits.PARTITIONS_MAX, default=1),
        **_SETTINGS,
        id_zone=text("Message ids are unique within a zone of this name; empty: within each stream."),
    ),
    "TopicPatch": taken("", partitions=number(low=1, maximum=limits.PARTITIONS_MAX), **_SETTINGS),
    "TopicDone": told(name=text(), partitions=number(low=1)),
    "Trim": taken("floor", floor=number(low=None), partition=PLACE["partition"], force=flag("Past pinned cursors.")),
    "DeleteRecords": taken(
        "ranges",
        ranges=list_(
            list_(number(), minItems=2, maxItems=2), minItems=1, description="[first, next), sorted and disjoint."
        ),
        partition=PLACE["partition"],
    ),
    "Application": told(
        fence=number("What the driver proves itself with."),
        query=text(),
        batch=number("The last that was published; -1: none.", low=-1),
        source_end=_BASE64,
    ),
    "StagePost": taken(
        "",
        application=text(),
        fence=number(low=None),
        ttl_ms=number("0: a day.", maximum=limits.STAGE_TTL_MS_MAX),
        content_type=text("application/json for a stage that goes into a stream of JSON."),
    ),
    "Stage": told(**_STAGE),
    "StagesDrop": taken("stage_ids", stage_ids=list_(number())),
    "Publish": taken(
        "application fence query batch",
        application=text(),
        fence=number(),
        query=text(),
        batch=number(low=-1),
        stages=list_(
            taken(
                "stage_id topic count",
                stage_id=number(),
                **PLACE,
                count=number(),
                message_ids=flag("Records carry ids in the header oncelog.message-id.", default=False),
            )
        ),
        source_start=_BASE64,
        source_end=_BASE64,
        accept_new_query=flag(default=False),
        cursors=list_(ref("CursorMove")),
    ),
    "Health": told(
        status=text(
            "no_room, held: it lives and can be read; its disk is full, or writes wait.", enum=["ok", "no_room", "held"]
        ),
        writes=text(enum=["accepted", "refused", "held"]),
        reason=or_null(text("Why writes are refused or wait, and what to do about it.")),
        durability=text(enum=["fdatasync", "none"]),
        version=text(),
        entry=number(),
        clock_ahead_ms=number("How far the log is ahead of the clock of its machine."),
    ),
}
