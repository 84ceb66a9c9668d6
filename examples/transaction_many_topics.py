"""Several partitions and topics become visible at one instant. Start a server first: oncelog serve --in-memory

python examples/transaction_many_topics.py [URL]
"""

import sys

from oncelog.client import Client


def main(url: str) -> None:
    with Client(url) as client:
        client.create_topic("orders", partitions=2)
        client.create_topic("audit-log")

        pid, epoch = (held := client.begin_transaction("my-txn", 60_000)).producer_id, held.epoch
        partitions = [("orders", 0), ("orders", 1), ("audit-log", 0)]
        client.add_partitions_to_txn("my-txn", pid, epoch, partitions)
        for topic, partition in partitions:
            client.append_in_txn(
                "my-txn", pid, epoch, topic, [{"in": f"{topic}/{partition}"}], sequence=0, partition=partition
            )
        before = {(stream.topic, stream.partition): stream.stable for stream in client.cut().streams}
        client.end_transaction("my-txn", pid, epoch, True)  # all or nothing
        after = {(stream.topic, stream.partition): stream.stable for stream in client.cut().streams}
        print(f"visible before the commit: {before}")
        print(f"visible after the commit:  {after}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4437")
