"""JetStream's error catalogue: (code, number, description), as the real server spells them.

Six descriptions are those of seed 000 (atomic batch publishing), which differ from the real server's.
"""

from typing import Any, Final, NamedTuple


class ApiError(NamedTuple):
    """What an API request or a publish is refused with."""

    code: int
    number: int
    description: str

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {"code": self.code, "err_code": self.number, "description": self.description}


# --- requests --------------------------------------------------------------------------------------------------
BAD_REQUEST: Final = ApiError(400, 10003, "bad request")
REQUEST_NOT_EMPTY: Final = ApiError(400, 10038, "expected an empty request payload")
API_LEVEL: Final = ApiError(412, 10185, "JetStream minimum api level required")
CLUSTER_REQUIRED: Final = ApiError(503, 10010, "JetStream clustering support required")
INSUFFICIENT_RESOURCES: Final = ApiError(503, 10023, "insufficient resources")
UNAVAILABLE: Final = ApiError(503, 10008, "JetStream system temporarily unavailable")

# --- streams ---------------------------------------------------------------------------------------------------
STREAM_NOT_FOUND: Final = ApiError(404, 10059, "stream not found")
STREAM_NAME_IN_USE: Final = ApiError(400, 10058, "stream name already in use with a different configuration")
STREAM_MISMATCH: Final = ApiError(400, 10056, "stream name in subject does not match request")
STREAM_SEALED: Final = ApiError(400, 10109, "invalid operation on sealed stream")
SUBJECT_OVERLAP: Final = ApiError(400, 10065, "subjects overlap with an existing stream")
REPLICAS_NOT_SUPPORTED: Final = ApiError(500, 10074, "replicas > 1 not supported in non-clustered mode")
REPLICAS_NEGATIVE: Final = ApiError(400, 10133, "replicas count cannot be negative")
NO_MESSAGE: Final = ApiError(404, 10037, "no message found")
MESSAGE_TOO_LARGE: Final = ApiError(400, 10054, "message size exceeds maximum allowed")
HEADER_TOO_LARGE: Final = ApiError(400, 10097, "header size exceeds maximum allowed of 64k")
MIRROR_WITH_SUBJECTS: Final = ApiError(400, 10034, "stream mirrors can not contain subjects")
MIRROR_WITH_SOURCES: Final = ApiError(400, 10031, "stream mirrors can not also contain other sources")
MIRROR_WITH_FIRST_SEQUENCE: Final = ApiError(400, 10143, "stream mirrors can not have first sequence configured")
MIRROR_WITH_ATOMIC: Final = ApiError(400, 10198, "stream mirrors can not also use atomic publishing")
MIRROR_NOT_UPDATABLE: Final = ApiError(400, 10055, "stream mirror configuration can not be updated")
MIRROR_NAME_INVALID: Final = ApiError(400, 10142, "mirrored stream name is invalid")
SOURCE_NAME_INVALID: Final = ApiError(400, 10141, "sourced stream name is invalid")
SOURCE_DUPLICATE: Final = ApiError(400, 10140, "duplicate source configuration detected")

# --- publishing ------------------------------------------------------------------------------------------------
EXPECTED_STREAM: Final = ApiError(400, 10060, "expected stream does not match")
WRONG_LAST_SEQUENCE_CONSTANT: Final = ApiError(400, 10164, "wrong last sequence")
SUBJECT_SEQUENCE_MISSING: Final = ApiError(400, 10193, "missing sequence for expected last sequence per subject")
TTL_DISABLED: Final = ApiError(400, 10166, "per-message TTL is disabled")
TTL_INVALID: Final = ApiError(400, 10165, "invalid per-message TTL")

# --- atomic batches: the first six are spelled by seed 000 -----------------------------------------------------
BATCH_DISABLED: Final = ApiError(400, 10174, "Batch publish not enabled on stream")
BATCH_SEQUENCE_MISSING: Final = ApiError(400, 10175, "Batch publish sequence is missing")
BATCH_INCOMPLETE: Final = ApiError(400, 10176, "Batch publish is incomplete and was abandoned")
BATCH_HEADER_UNSUPPORTED: Final = ApiError(
    400, 10177, "Batch publish unsupported header used (Nats-Expected-Last-Msg-Id or Nats-Msg-Id)"
)
BATCH_ID_INVALID: Final = ApiError(400, 10179, "Batch publish ID is invalid (exceeds 64 characters)")
BATCH_COMMIT_INVALID: Final = ApiError(400, 10200, "atomic publish batch commit is invalid")
BATCH_DUPLICATE_ID: Final = ApiError(400, 10201, "atomic publish batch contains duplicate message id")
BATCH_TOO_MANY: Final = ApiError(429, 10210, "atomic publish too many inflight")

# --- consumers -------------------------------------------------------------------------------------------------
CONSUMER_NOT_FOUND: Final = ApiError(404, 10014, "consumer not found")
CONSUMER_NAME_IN_USE: Final = ApiError(400, 10013, "consumer name already in use")
CONSUMER_EXISTS: Final = ApiError(400, 10148, "consumer already exists")
CONSUMER_MISSING: Final = ApiError(400, 10149, "consumer does not exist")
CONSUMER_LIMIT: Final = ApiError(400, 10026, "maximum consumers limit reached")
CONSUMER_CONFIG_REQUIRED: Final = ApiError(400, 10078, "consumer config required")
DURABLE_NOT_SET: Final = ApiError(400, 10018, "consumer expected to be durable but a durable name was not set")
DURABLE_MISMATCH: Final = ApiError(400, 10017, "consumer name in subject does not match durable name in request")
EPHEMERAL_WITH_DURABLE: Final = ApiError(
    400, 10020, "consumer expected to be ephemeral but a durable name was set in request"
)
NAME_MISMATCH: Final = ApiError(400, 10132, "Consumer Durable and Name have to be equal if both are provided")
FILTER_MISMATCH: Final = ApiError(
    400, 10131, "Consumer create request did not match filtered subject from create subject"
)
FILTER_NOT_SUBSET: Final = ApiError(
    400, 10093, "consumer filter subject is not a valid subset of the interest subjects"
)
FILTERS_BOTH: Final = ApiError(400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified")
FILTERS_OVERLAP: Final = ApiError(400, 10138, "consumer subject filters cannot overlap")
FILTER_EMPTY: Final = ApiError(400, 10139, "consumer filter in FilterSubjects cannot be empty")
FILTERS_IN_SUBJECT: Final = ApiError(400, 10137, "consumer with multiple subject filters cannot use subject based API")
DELIVER_WILDCARDS: Final = ApiError(400, 10079, "consumer deliver subject has wildcards")
DELIVER_INVALID: Final = ApiError(400, 10112, "invalid push consumer deliver subject")
DELIVER_CYCLE: Final = ApiError(400, 10081, "consumer deliver subject forms a cycle")
PUSH_MAX_WAITING: Final = ApiError(400, 10080, "consumer in push mode can not set max waiting")
PENDING_NEEDS_ACK: Final = ApiError(400, 10082, "consumer requires ack policy for max ack pending")
HEARTBEAT_SMALL: Final = ApiError(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
PULL_REQUIRES_ACK: Final = ApiError(
    400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"
)
PULL_RATE_LIMIT: Final = ApiError(400, 10086, "consumer in pull mode can not have rate limit set")
HEARTBEAT_NEEDS_PUSH: Final = ApiError(400, 10088, "consumer idle heartbeat requires a push based consumer")
FLOW_NEEDS_PUSH: Final = ApiError(400, 10089, "consumer flow control requires a push based consumer")
FLOW_NEEDS_HEARTBEAT: Final = ApiError(400, 10108, "consumer with flow control also needs heartbeats")
EXPIRES_SMALL: Final = ApiError(400, 10115, "consumer max request expires needs to be >= 1ms")
BACKOFF_TOO_LONG: Final = ApiError(400, 10116, "max deliver is required to be > length of backoff values")
BACKOFF_NEGATIVE: Final = ApiError(400, 10184, "consumer backoff needs to be positive")
ACK_WAIT_NEGATIVE: Final = ApiError(400, 10183, "consumer ack wait needs to be positive")
CONSUMER_REPLICAS: Final = ApiError(400, 10126, "consumer config replica count exceeds parent stream")
ACK_POLICY_INVALID: Final = ApiError(400, 10181, "consumer ack policy invalid")
REPLAY_POLICY_INVALID: Final = ApiError(400, 10182, "consumer replay policy invalid")
WORK_QUEUE_EXPLICIT: Final = ApiError(400, 10098, "workqueue stream requires explicit ack")
WORK_QUEUE_UNFILTERED: Final = ApiError(400, 10099, "multiple non-filtered consumers not allowed on workqueue stream")
WORK_QUEUE_NOT_UNIQUE: Final = ApiError(400, 10100, "filtered consumer not unique on workqueue stream")
WORK_QUEUE_DELIVER_ALL: Final = ApiError(400, 10101, "consumer must be deliver all on workqueue stream")
PRIORITY_UNSUPPORTED: Final = ApiError(400, 10160, "Provided priority group does not exist for this consumer")


def stream_invalid(what: str) -> ApiError:
    """A configuration that cannot be used (streams, and some of consumers)."""
    return ApiError(500, 10052, what)


def json_invalid(what: str) -> ApiError:
    """A request that is not the JSON it should be."""
    return ApiError(400, 10025, f"invalid JSON: {what}")


def wrong_last_sequence(last: int) -> ApiError:
    """An expectation that does not hold, with what is there."""
    return ApiError(400, 10071, f"wrong last sequence: {last}")


def wrong_last_msg_id(last: str) -> ApiError:
    """The same of `Nats-Expected-Last-Msg-Id`."""
    return ApiError(400, 10070, f"wrong last msg ID: {last}")


def store_failed(what: str) -> ApiError:
    """A message that was not stored."""
    return ApiError(503, 10077, what)


def sequence_not_found(sequence: int) -> ApiError:
    """A delete of a message that is not there."""
    return ApiError(400, 10043, f"sequence {sequence} not found")


def purge_failed(what: str) -> ApiError:
    """A purge that is not allowed."""
    return ApiError(500, 10110, what)


def delete_failed(what: str) -> ApiError:
    """A delete of a message that is not allowed."""
    return ApiError(500, 10057, what)


def rollup_failed(what: str) -> ApiError:
    """A rollup that is not allowed."""
    return ApiError(500, 10111, what)


def batch_too_large(messages_max: int) -> ApiError:
    """Seed 000 names its default in the sentence; a server with another limit says its own."""
    limit = f"default {messages_max}" if messages_max == 1_000 else f"here {messages_max}"
    return ApiError(400, 10199, f"Batch publish sequence exceeds server limit ({limit})")


def policy_invalid(what: str) -> ApiError:
    """A delivery policy that contradicts its start."""
    return ApiError(400, 10094, what)


def consumer_create(what: str) -> ApiError:
    """Anything else that a consumer cannot be made with."""
    return ApiError(500, 10012, what)


def too_long(what: str, limit: int) -> ApiError:
    """A consumer's name or description."""
    number = 10102 if what == "name" else 10107
    return ApiError(400, number, f"consumer {what} is too long, maximum allowed is {limit}")


def reset_invalid(what: str) -> ApiError:
    """A consumer reset to a place that it cannot have."""
    return ApiError(400, 10204, f"invalid reset: {what}")
