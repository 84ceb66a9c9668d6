"""Every error that the NATS face answers, for `oncelog explain` and docs/errors.md."""

from collections.abc import Iterator
from typing import Final

from oncelog.protocols.explained import Explained
from oncelog.protocols.nats import errors
from oncelog.protocols.nats.errors import ApiError

_MADE: Final = (
    errors.stream_invalid("<what is wrong with the configuration>"),
    errors.json_invalid("<what is wrong>"),
    errors.wrong_last_sequence(0),
    errors.wrong_last_msg_id("<id>"),
    errors.store_failed("<why the message was not stored>"),
    errors.sequence_not_found(0),
    errors.purge_failed("stream purge not permitted"),
    errors.delete_failed("message delete not permitted"),
    errors.rollup_failed("rollup not permitted"),
    errors.batch_too_large(1_000),
    errors.policy_invalid("<policy and start that contradict each other>"),
    errors.consumer_create("<what cannot be>"),
    errors.too_long("name", 255),
    errors.too_long("description", 4_096),
    errors.reset_invalid("<why>"),
)

_ADVICE: Final = {
    10174: "Give the stream `allow_atomic`.",
    10175: "Number the members of a batch from 1 with `Nats-Batch-Sequence`.",
    10176: "Send the whole batch again, from its first member.",
    10177: "Leave the header out, or for ids set `nats.batch_msg_id` to accept.",
    10179: "Use an id of 1 to 64 characters.",
    10199: "Split the batch, or raise `nats.batch_messages_max`.",
    10200: "`Nats-Batch-Commit` is `1` or `eob`.",
    10201: "One of the messages is stored already: read it, or use other ids.",
    10210: "Commit or end open batches first, or raise `nats.batches_per_stream` or `nats.batches_max`.",
    10071: "Read the last message, decide anew, and publish with the sequence that is there.",
    10164: "Expect the stream's sequence on the first member alone, and a subject before the batch writes it.",
    10185: "The server has API level 3.",
    10059: "Create the stream, or correct its name.",
    10014: "Create the consumer, or correct its name.",
    10065: "Choose subjects that no other stream stores.",
    10058: "Update the stream, or choose another name.",
    10054: "Send less in one message, or raise the stream's `max_msg_size`; a batch has at most 4 MiB.",
    10023: "Wait and send the same again: the disk is full, or too much waits.",
    10074: "Ask for one replica: this is a single server.",
    10010: "This is a single server; leave the request out.",
}
_DEFAULT: Final = "Correct what the description names, and send the request again."


def explained() -> Iterator[Explained]:
    """One row per error number."""
    known = [each for each in vars(errors).values() if isinstance(each, ApiError)]
    seen: set[int] = set()
    for error in sorted([*known, *_MADE], key=lambda each: each.number):
        if error.number not in seen:
            seen.add(error.number)
            advice = _ADVICE.get(error.number, _DEFAULT)
            yield Explained("nats", str(error.number), str(error.code), f"{error.description}.", advice)
