"""One partition: register it, write to it, commit. Start a server first: oncelog serve --in-memory

python examples/transaction_one_partition.py [URL]
"""

import sys

from oncelog.client import Client


def main(url: str) -> None:
    with Client(url) as client:
        client.create_topic("orders", partitions=2)

        # By the coordinator's own calls: every call carries what begin_transaction answered.
        pid, epoch = (held := client.begin_transaction("my-txn", 60_000)).producer_id, held.epoch
        client.add_partitions_to_txn("my-txn", pid, epoch, [("orders", 0)])
        client.append_in_txn("my-txn", pid, epoch, "orders", [{"order": 1}], sequence=0)
        client.end_transaction("my-txn", pid, epoch, True)

        # The same in short: the block commits at its end, and aborts if it raises.
        with client.transaction("my-txn", timeout_ms=60_000) as txn:
            txn.append("orders", {"order": 2})

        with client.reader("orders", live=False) as reader:
            print([record.json() for record in reader])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4437")
