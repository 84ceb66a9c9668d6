"""Consume, transform, produce: the output and how far the input was read are committed together.

Start a server first: oncelog serve --in-memory

python examples/transaction_consume_transform_produce.py [URL]
"""

import sys

from oncelog.client import Client, TxnOffset


def main(url: str) -> None:
    with Client(url) as client:
        client.create_topic("input-topic")
        client.create_topic("output-topic")

        pid, epoch = (held := client.begin_transaction("ctp-txn")).producer_id, held.epoch
        client.add_partitions_to_txn("ctp-txn", pid, epoch, [("output-topic", 0)])
        client.append_in_txn("ctp-txn", pid, epoch, "output-topic", [{"total": 42}], sequence=0)
        client.add_offsets_to_txn("ctp-txn", pid, epoch, "my-group")
        # Any offset of 0 or more: it is the group's own word, and the input may be shorter.
        client.txn_offset_commit("ctp-txn", pid, epoch, "my-group", [TxnOffset("input-topic", 150)])
        print(f"before the commit: {client.cursor('kafka:my-group', 'input-topic')}")
        client.end_transaction("ctp-txn", pid, epoch, True)
        print(f"after the commit:  {client.cursor('kafka:my-group', 'input-topic')}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4437")
