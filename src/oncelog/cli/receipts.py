"""`oncelog receipts STREAM ID`: what became of a message id."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from oncelog.cli import exits
from oncelog.cli.listing import PartitionOption, StreamArgument
from oncelog.cli.live_check import shaped
from oncelog.cli.remote import LISTED, URL, UrlOption, end_if_missing, reached
from oncelog.cli.screen import end, print_json, print_table, printable, when
from oncelog.client.errors import NotFound
from oncelog.client.models import Receipt
from oncelog.client.wire import name_path, topic_path


def receipts_command(
    topic: StreamArgument,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message id that the write carried.")],
    url: UrlOption = URL,
    partition: PartitionOption = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what became of a message id. Exit code 1 if it is unknown."""
    with reached(url) as log:
        try:
            told = log.get(f"/v1/receipts/{topic_path(topic)}/{name_path(message_id)}", {"partition": partition})
        except NotFound as missing:
            if missing.code == "topic_missing":
                end_if_missing(log, topic, partition, LISTED)
                raise
            end(exits.REFUSED, f"{topic} knows no message id {message_id!r}")
        receipt = shaped(told, Receipt)
    if json:
        print_json(told)
        return
    table = Table.grid(padding=(0, 2))
    for name, said in _said(receipt).items():
        table.add_row(name, Text(printable(said), overflow="fold"))
    print_table(table)


def _said(receipt: Receipt) -> dict[str, str]:
    first, next_ = receipt.first, receipt.next
    said = {
        "stream": f"{receipt.topic}, partition {receipt.partition}",
        "offset" if next_ == first + 1 else "offsets": f"{first}" if next_ == first + 1 else f"{first} to {next_ - 1}",
        # The server keeps one time: that of the record, or after its removal that of the id's last use.
        "last used" if receipt.removed else "written": f"{when(receipt.time_ms)} UTC",
        "digest": receipt.digest,
        "state": "removed since" if receipt.removed else "stored",
    }
    if (producer := receipt.producer) is not None:
        said["producer"] = f"{producer.name}, epoch {producer.epoch}, sequence {producer.sequence}"
    return said
