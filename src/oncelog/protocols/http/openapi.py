"""The OpenAPI description of everything that is not the durable-streams protocol; served at `/v1/openapi.json`.

One operation per method and path; what comes and goes is in `openapi_schemas`. A test holds it against the router
(every path here is routed, every route is here) and against real answers.
"""

from typing import Any, Final

from oncelog import limits
from oncelog.protocols.http.openapi_schemas import NEXT, PLACE, PRODUCER, SCHEMAS, Schema, list_, number, ref, told

_REFUSALS: Final = {
    400: "Malformed: names, numbers, members.",
    403: "Fenced: a newer epoch or driver exists.",
    404: "Unknown.",
    409: "Something else is there, or a condition failed.",
    413: "Over a limit, which is named.",
    503: "Overloaded; nothing was done.",
    507: "The disk is full; nothing was done.",
}
_WRITES: Final = (413, 503, 507)

_ANY_REFUSAL: Final[Schema] = {"default": {"$ref": "#/components/responses/default"}}
"""What may come from any path: a method that it has not, a request that cannot be read, damage, a server that stops."""


def _path(name: str, description: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}


def _query(name: str, description: str, schema: Schema | None = None, *, required: bool = False) -> Schema:
    schema = schema or {"type": "string"}
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def _body(schema: str, example: object, *, required: bool = True) -> Schema:
    return {"required": required, "content": {"application/json": {"schema": ref(schema), "example": example}}}


_ONE_BATCH: Final = {
    "required": True,
    "description": "One record batch, format 2.",
    "content": {"application/vnd.oncelog.batches": {"schema": {}}},
}


def _done(description: str, schema: Schema | None, content_type: str = "application/json") -> Schema:
    content = {} if schema is None else {"content": {content_type: {"schema": schema}}}
    return {"description": description, **content}


def _operation(
    name: str,
    summary: str,
    done: dict[int, Schema],
    refused: tuple[int, ...] = (),
    *,
    parameters: tuple[Schema, ...] = (),
    body: Schema | None = None,
) -> Schema:
    refusals = {str(status): {"$ref": f"#/components/responses/{status}"} for status in refused}
    return {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        **({} if body is None else {"requestBody": body}),
        "responses": {str(status): answer for status, answer in done.items()} | refusals | _ANY_REFUSAL,
    }


_TOPIC: Final = _path("topic", "Percent-encoded, but for its `/`.")
_NAME: Final = _path("name", "Percent-encoded, its `/` too.")
_TXN: Final = _path("txn_id", "The transactional id, percent-encoded, its `/` too.")
_PARTITION: Final = _query("partition", "Which partition.", PLACE["partition"])
_PAGE: Final = (
    _query("prefix", "Only names that begin with this."),
    _query("after", "The `next` of the page before."),
    _query("limit", "Rows of a page.", number(low=1, maximum=limits.HTTP_LIST_MAX, default=limits.HTTP_LIST_DEFAULT)),
)
_MOVE: Final = {"name": "billing", "topic": "orders", "frontier": 42}
_COMMIT: Final = {
    "commit_id": "order-7",
    "producer": {"name": "shop", "epoch": 1, "sequence": 0},
    "appends": [
        {
            "topic": "orders",
            "partition": 0,
            "message_id": "o7",
            "records": [
                {"json": {"order": 7}},
                {"value": '"text"'},
                {"base64": "WzBd", "key": "k", "headers": {"h": "v"}, "timestamp_ms": 0},
            ],
        },
        {"topic": "stock", "records": [{"value": "-1"}]},
    ],
    "conditions": [
        {"kind": "expected_tail", "topic": "orders", "tail": 1},
        {"kind": "stream_new", "topic": "x"},
        {"kind": "cursor_equals", "name": "billing", "topic": "orders", "frontier": 0},
        {"kind": "id", "topic": "orders", "message_id": "o7", "present": False},
        {"kind": "epoch_equals", "topic": "orders", "producer": "http:shop", "epoch": -1},
    ],
    "cursors": [{"name": "billing", "topic": "orders", "frontier": 4, "metadata": "", "pinned": False}],
}
_PUBLISH: Final = {
    "application": "nightly",
    "fence": 3,
    "query": "q-1",
    "batch": 17,
    "stages": [{"stage_id": 12, "topic": "orders", "partition": 0, "count": 1000}],
    "source_end": "eyJvcmRlcnMiOiA0Mn0=",
    "cursors": [_MOVE],
}


def _listed(what: str, schema: str) -> dict[int, Schema]:
    return {200: _done("A page.", told(**{what: list_(ref(schema)), "next": NEXT}))}


def _one(description: str, schema: str) -> dict[int, Schema]:
    return {200: _done(description, ref(schema))}


_NOTHING: Final = {204: _done("Done.", None)}
_PATHS: Final[dict[str, dict[str, Schema]]] = {
    "/v1/commit": {
        "post": _operation(
            "commit",
            "Append to many streams, move cursors, check conditions: all at one instant, or nothing",
            _one("It took effect, now or before.", "Committed"),
            (400, 403, 404, 409, *_WRITES),
            body=_body("Commit", _COMMIT),
        )
    },
    "/v1/commit/producers/{name}": {
        "get": _operation(
            "getCommitProducer",
            "What a restarted producer of commits asks",
            _one("Where it stands.", "Producer"),
            (400, 404),
            parameters=(_NAME,),
        )
    },
    "/v1/receipts/{topic}/{id}": {
        "get": _operation(
            "getReceipt",
            "What became of a message id",
            _one("It is remembered.", "Receipt"),
            (400, 404),
            parameters=(_TOPIC, _path("id", "Percent-encoded, its `/` too."), _PARTITION),
        )
    },
    "/v1/producers": {
        "get": _operation(
            "listProducers",
            "The producers of a stream, by scope and name",
            _listed("producers", "Producer"),
            (400, 404),
            parameters=(_query("topic", "Whose.", required=True), _PARTITION, *_PAGE),
        )
    },
    "/v1/producers/{topic}/{name}": {
        "get": _operation(
            "getProducer",
            "What a restarted producer asks",
            _one("Where it stands.", "Producer"),
            (400, 404),
            parameters=(_TOPIC, _NAME, _PARTITION, _query("scope", "Whose names.", PRODUCER["scope"])),
        )
    },
    "/v1/cut": {
        "get": _operation(
            "cut",
            "Where streams stand, at one instant for all",
            {200: _done("One instant.", told(entry=number(), time_ms=number(), streams=list_(ref("CutStream"))))},
            (400,),
            parameters=(_query("topic", "Which; all if none is named.", list_({"type": "string"})),),
        )
    },
    "/v1/offsets": {
        "get": _operation(
            "offsets",
            "Where streams stood at an entry, or at a time",
            {200: _done("Offsets: what lies below was there.", told(streams=list_(ref("Stood"))))},
            (400, 409),
            parameters=(
                _query("topic", "Which; all if none is named.", list_({"type": "string"})),
                _query("entry", "The last entry that counts, from a cut.", number()),
                _query("time_ms", "Records appended before this time count.", number()),
            ),
        )
    },
    "/v1/streams": {
        "get": _operation(
            "listStreams", "All streams; pages are by topic", _listed("streams", "Stream"), (400,), parameters=_PAGE
        )
    },
    "/v1/cursors": {
        "get": _operation(
            "listCursors", "All cursors, by name", _listed("cursors", "CursorListed"), (400,), parameters=_PAGE
        )
    },
    "/v1/cursors/{name}/{topic}": {
        "get": _operation(
            "getCursor", "A cursor", _one("It.", "Cursor"), (400, 404), parameters=(_NAME, _TOPIC, _PARTITION)
        ),
        "put": _operation(
            "putCursor",
            "Put a cursor somewhere, also backwards",
            _NOTHING,
            (400, 404, *_WRITES),
            parameters=(_NAME, _TOPIC, _PARTITION),
            body=_body("CursorPut", {"frontier": 42, "metadata": "", "pinned": False}),
        ),
        "delete": _operation(
            "deleteCursor", "Forget a cursor", _NOTHING, (400, 404), parameters=(_NAME, _TOPIC, _PARTITION)
        ),
    },
    "/v1/txns": {
        "get": _operation("listTxns", "All transactions, by id", _listed("txns", "Txn"), (400,), parameters=_PAGE)
    },
    "/v1/txns/{txn_id}": {
        "get": _operation("getTxn", "One transaction", _one("Its state.", "Txn"), (400, 404), parameters=(_TXN,))
    },
    "/v1/txns/{txn_id}/begin": {
        "post": _operation(
            "beginTxn",
            "Take a transactional id over: the holder before is fenced, and its transaction aborted",
            _one("Who holds the transactional id.", "TxnHolder"),
            (400, 403, 404, 409, *_WRITES),
            parameters=(_TXN,),
            body=_body("TxnBegin", {"timeout_ms": 60_000}),
        )
    },
    "/v1/txns/{txn_id}/partitions": {
        "post": _operation(
            "addTxnPartitions",
            "Name partitions that the transaction will write to, all or none",
            _one("Who holds the transactional id.", "TxnHolder"),
            (400, 403, 404, 409, *_WRITES),
            parameters=(_TXN,),
            body=_body(
                "TxnPartitions", {"producer_id": 7, "epoch": 0, "partitions": [{"topic": "orders", "partition": 0}]}
            ),
        )
    },
    "/v1/txns/{txn_id}/groups": {
        "post": _operation(
            "addTxnGroups",
            "Name consumer groups whose offsets the transaction will commit",
            _one("Who holds the transactional id.", "TxnHolder"),
            (400, 403, 404, 409, *_WRITES),
            parameters=(_TXN,),
            body=_body("TxnGroups", {"producer_id": 7, "epoch": 0, "groups": ["billing"]}),
        )
    },
    "/v1/txns/{txn_id}/offsets": {
        "post": _operation(
            "commitTxnOffsets",
            "Offsets that count once the transaction commits",
            _one("Who holds the transactional id.", "TxnHolder"),
            (400, 403, 404, 409, *_WRITES),
            parameters=(_TXN,),
            body=_body(
                "TxnOffsets",
                {"producer_id": 7, "epoch": 0, "group": "billing", "offsets": [{"topic": "orders", "offset": 150}]},
            ),
        )
    },
    "/v1/txns/{txn_id}/append": {
        "post": _operation(
            "appendTxn",
            "Write records; a retry with the same sequence is a duplicate",
            _one("Where they lie; they are visible once the transaction commits.", "TxnAppended"),
            (400, 403, 404, 409, *_WRITES),
            parameters=(_TXN,),
            body=_body(
                "TxnAppend",
                {"producer_id": 7, "epoch": 0, "topic": "orders", "sequence": 0, "records": [{"json": {"order": 7}}]},
            ),
        )
    },
    "/v1/txns/{txn_id}/end": {
        "post": _operation(
            "endTxn",
            "Commit or abort: the answer means that every partition shows it",
            _one("Who holds the transactional id.", "TxnHolder"),
            (400, 403, 404, 409, *_WRITES),
            parameters=(_TXN,),
            body=_body("TxnEnd", {"producer_id": 7, "epoch": 0, "commit": True}),
        )
    },
    "/v1/txns/{txn_id}/abort": {
        "post": _operation(
            "abortTxn",
            "End somebody else's transaction, named by the holder that was seen",
            _one("Who holds the transactional id.", "TxnHolder"),
            (400, 403, 404, 409, *_WRITES),
            parameters=(_TXN,),
            body=_body("TxnAbort", {"producer_id": 7, "epoch": 0}),
        )
    },
    "/v1/topics/{topic}": {
        "get": _operation("getTopic", "A topic", _one("Its settings.", "Topic"), (400, 404), parameters=(_TOPIC,)),
        "put": _operation(
            "putTopic",
            "Make a topic, or agree with the one that is there",
            {201: _done("Made.", ref("TopicDone")), 200: _done("The same is there.", ref("TopicDone"))},
            (400, 409, *_WRITES),
            parameters=(_TOPIC,),
            body=_body("TopicPut", {"partitions": 3, "content_type": "application/json"}, required=False),
        ),
        "patch": _operation(
            "patchTopic",
            "Let a topic grow, or change some of its settings: one or the other. To JSON only while it is empty",
            _one("Done.", "TopicDone"),
            (400, 404, 409, *_WRITES),
            parameters=(_TOPIC,),
            body=_body("TopicPatch", {"partitions": 6}),
        ),
    },
    "/v1/topics/{topic}/trim": {
        "post": _operation(
            "trim",
            "Remove the oldest records",
            _one("Where the stream stands.", "Standing"),
            (400, 404, 409),
            parameters=(_TOPIC,),
            body=_body("Trim", {"partition": 0, "floor": 40, "force": False}),
        )
    },
    "/v1/topics/{topic}/delete-records": {
        "post": _operation(
            "deleteRecords",
            "Remove single records; their offsets stay empty",
            _one("Where the stream stands.", "Standing"),
            (400, 404, 413),
            parameters=(_TOPIC,),
            body=_body("DeleteRecords", {"partition": 0, "ranges": [[40, 41], [45, 50]]}),
        )
    },
    "/v1/applications/{name}": {
        "post": _operation(
            "openApplication",
            "A Spark driver starts: drivers before it are fenced",
            _one("Its fence, and what was published last.", "Application"),
            (400, *_WRITES),
            parameters=(_NAME,),
        ),
        "get": _operation(
            "getApplication",
            "The same, without fencing anybody",
            _one("The present fence, and what was published last.", "Application"),
            (400, 404),
            parameters=(_NAME,),
        ),
    },
    "/v1/stages": {
        "post": _operation(
            "openStage",
            "Make an empty stage: durable, invisible, used once",
            _one("It.", "Stage"),
            (400, 403, *_WRITES),
            body=_body("StagePost", {"application": "nightly", "fence": 3, "ttl_ms": 3_600_000}, required=False),
        )
    },
    "/v1/stages/{id}": {
        "post": _operation(
            "appendStage",
            "Add one batch to a stage",
            _one("Where it stands.", "Stage"),
            (400, 403, 404, 409, *_WRITES),
            parameters=(
                _path("id", "The number of the stage."),
                _query("at", "How many records it holds: so a retry is recognised.", number(), required=True),
            ),
            body=_ONE_BATCH,
        )
    },
    "/v1/stages/drop": {
        "post": _operation(
            "dropStages",
            "Let go of stages; unknown ones are skipped",
            _NOTHING,
            (400, 404, 413),
            body=_body("StagesDrop", {"stage_ids": [12, 13]}),
        )
    },
    "/v1/publish": {
        "post": _operation(
            "publish",
            "Put stages into streams, in one entry with the application's progress",
            _one("It took effect, now or before.", "Committed"),
            (400, 403, 404, 409, *_WRITES),
            body=_body("Publish", _PUBLISH),
        )
    },
    "/health": {
        "get": _operation(
            "health", "Is it alive, does it take writes, and how safe are its confirms", _one("It is.", "Health")
        )
    },
    "/metrics": {
        "get": _operation(
            "metrics", "Counters for Prometheus", {200: _done("Its text format.", {"type": "string"}, "text/plain")}
        )
    },
    "/v1/openapi.json": {
        "get": _operation("describe", "This description", {200: _done("OpenAPI 3.1.", {"type": "object"})})
    },
}

DESCRIPTION: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {
        "title": "oncelog",
        "version": "1",
        "description": "A log that every write reaches exactly once: everything beside the durable-streams protocol, "
        "which is at /v1/stream/<topic>. Every 2xx answer to a write means that it is on disk.",
        "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
    },
    "paths": _PATHS,
    "components": {
        "schemas": SCHEMAS,
        "responses": {
            str(status): _done(description, ref("Problem"), "application/problem+json")
            for status, description in _REFUSALS.items()
        }
        | {
            "default": _done(
                "What any request may get: 400, 403 (a page), 405, 408, 413, 414, 415, 417, 431, 500, 501, 503, 505.",
                ref("Problem"),
                "application/problem+json",
            )
        },
    },
}
