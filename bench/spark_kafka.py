"""The peer of `bench spark`: Spark's own Kafka connector, and Apache Kafka in KRaft mode, one node on this machine.

Nothing of it is in the repository. Maven (`mvn` on the PATH) brings the jars from wherever it is set up to take them,
once, into the user's cache. Where that does not work the reason is told and the bench goes on without a peer.

The connector is asked for in the version of the Spark that runs. A mirror that has not got that one yet may have an
older one that runs on this Spark as well; which one ran is printed with the results. Transitive dependencies are left
out and named instead: those that Spark has are in Spark, and Spark's POMs name further repositories.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

BROKER_VERSION = "4.3.1"
SCALA = "2.13"

FETCH_S_MAX = 400.0
START_S_MAX = 60.0
STOP_S_MAX = 30.0
LOOK_S = 0.1


class Jar(NamedTuple):
    group: str
    artifact: str
    version: str


class Connector(NamedTuple):
    """One set of jars that makes `format("kafka")`."""

    spark: str
    token_provider: str

    @property
    def name(self) -> str:
        return self.spark if self.spark == self.token_provider else f"{self.spark} (tokens {self.token_provider})"

    def jars(self) -> list[Jar]:
        return [
            Jar("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", self.spark),
            Jar("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", self.token_provider),
            Jar("org.apache.kafka", "kafka-clients", "3.9.2"),
            Jar("org.apache.commons", "commons-pool2", "2.13.1"),
        ]


OLDER = (Connector("4.2.0", "4.2.0"), Connector("4.2.0", "4.0.0"))
"""Tried in this order after the one of the Spark that runs. The token provider is not called without security."""


class KafkaMissing(Exception):
    """There is no peer here. Says why."""


class KafkaJars(NamedTuple):
    connector: list[Path]
    connector_name: str
    broker: list[Path]


def cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "oncelog" / "bench-kafka"


def fetched(spark_version: str) -> KafkaJars:
    """From the cache, or by Maven. KafkaMissing if neither has them."""
    if shutil.which("mvn") is None:
        raise KafkaMissing("there is no mvn on the PATH to fetch Kafka and its connector with")
    broker = _fetched([Jar("org.apache.kafka", f"kafka_{SCALA}", BROKER_VERSION)], transitive=True)
    reason = ""
    for connector in (Connector(spark_version, spark_version), *OLDER):
        try:
            return KafkaJars(_fetched(connector.jars(), transitive=False), connector.name, broker)
        except KafkaMissing as missing:
            reason = reason or str(missing)
    raise KafkaMissing(reason)


def _fetched(jars: list[Jar], *, transitive: bool) -> list[Path]:
    folder = cache() / "+".join(f"{jar.artifact}-{jar.version}" for jar in jars)
    if not folder.is_dir():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as made:
            (Path(made) / "pom.xml").write_text(_pom(jars, transitive=transitive))
            _maven(Path(made))
            with contextlib.suppress(OSError):  # another run was faster
                (Path(made) / "jars").rename(folder)
    return sorted(folder.glob("*.jar"))


def _maven(folder: Path) -> None:
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={folder / 'jars'}"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=FETCH_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KafkaMissing(f"Maven did not fetch it within {FETCH_S_MAX:.0f} s") from None
    if done.returncode or not (folder / "jars").is_dir():
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise KafkaMissing(f"Maven could not fetch it: {said[0][:300] if said else done.returncode}")


def _pom(jars: list[Jar], *, transitive: bool) -> str:
    nothing_else = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version>{'' if transitive else nothing_else}</dependency>"
        for jar in jars
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>kafka</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


# --- the broker ------------------------------------------------------------------------------------------------


class Broker:
    """One node that is broker and controller, with Kafka's defaults: nothing is synced before it is confirmed."""

    def __init__(self, jars: list[Path], directory: Path, partitions: int) -> None:
        directory.mkdir()
        self.port, controller = free_ports(2)
        properties = directory / "server.properties"
        properties.write_text(_properties(directory / "data", self.port, controller, partitions))
        java = [str(Path(os.environ["JAVA_HOME"]) / "bin" / "java"), "-Xmx1g", "-cp", ":".join(map(str, jars))]
        cluster = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        self._log = directory / "log"
        with self._log.open("wb") as log:
            subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", f"x{cluster[1:]}", "-c", str(properties)],
                stdout=log,
                stderr=log,
                check=True,
            )
            self._process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
        self._psutil = psutil.Process(self._process.pid)
        self._wait_ready()

    def _wait_ready(self) -> None:
        until = time.monotonic() + START_S_MAX
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(LOOK_S)
        self.close()
        raise KafkaMissing(f"the broker did not start: {self._log.read_text()[-500:]}")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def create(self, topic: str, partitions: int) -> None:
        """Before it is written to: the first writers of a topic that makes itself are at times left waiting."""
        from kafka.admin import KafkaAdminClient, NewTopic

        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])
            until = time.monotonic() + START_S_MAX
            while any(part["leader_id"] < 0 for part in admin.describe_topics([topic])[0]["partitions"]):
                if time.monotonic() > until:
                    raise KafkaMissing(f"topic {topic} gets no leader")
                time.sleep(LOOK_S)
        finally:
            admin.close()

    def cpu_s(self) -> float:
        times = self._psutil.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


def _properties(data: Path, port: int, controller: int, partitions: int) -> str:
    return f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


@contextlib.contextmanager
def running(jars: KafkaJars, directory: Path, partitions: int) -> Iterator[Broker]:
    broker = Broker(jars.broker, directory, partitions)
    try:
        yield broker
    finally:
        broker.close()
