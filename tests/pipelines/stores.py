"""An object store with the protocol of S3 on this machine, in a process of its own."""

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from subprocess import DEVNULL, Popen
from typing import Any, NamedTuple

from deltalake import DeltaTable

START_S_MAX = 60.0
POLL_S = 0.1


class Store(NamedTuple):
    address: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ALLOW_HTTP": "true",
        }

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(table, storage_options=self.options).to_pyarrow_table().to_pylist()
        return found

    def delete(self, bucket: str, key: str) -> None:
        self.client().delete_object(Bucket=bucket, Key=key)

    def client(self) -> Any:
        import boto3  # type: ignore[import-untyped, unused-ignore]

        told = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=self.address, **told)


@contextlib.contextmanager
def store_served(bucket: str = "lake") -> Iterator[Store]:
    """With one bucket."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with Popen(command, stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            _wait(port)
            store = Store(f"http://127.0.0.1:{port}")
            store.client().create_bucket(Bucket=bucket)
            yield store
        finally:
            process.kill()


def _wait(port: int) -> None:
    pause = threading.Event()
    for _ in range(int(START_S_MAX / POLL_S)):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        pause.wait(POLL_S)
    raise AssertionError("the store did not start")
