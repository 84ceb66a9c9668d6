"""A standalone cluster of Spark: a master and two workers from the PySpark of pip, each in a working folder of its own.

A cluster that is `apart` also keeps its workers from seeing the checkout and the folder of the driver: each worker runs
in a mount namespace in which empty folders lie over them. That needs the right to unshare mounts (`can_be_apart`).
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import oncelog
from oncelog.spark import java

ROOT = Path(oncelog.__file__).resolve().parent.parent.parent

START_S_MAX = 90.0
POLL_S = 0.1

WORKER_MEMORY = "1200m"
EXECUTOR_MEMORY = "700m"


def can_be_apart() -> bool:
    """Whether this machine lets a test hide folders from a process."""
    try:
        return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Cluster:
    """Started with its construction; `stop` ends every process of it."""

    def __init__(self, folder: Path, *, hidden: Sequence[Path] = (), worker_count: int = 2) -> None:
        self._folder = folder
        self._hidden = hidden
        self._home = java.prepare().home
        self._web_port = free_port()
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        address = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._web_port)]
        self._start("master", "org.apache.spark.deploy.master.Master", address)
        for _ in range(worker_count):
            self.add_worker()
        self._wait(worker_count)

    def add_worker(self) -> None:
        name = f"worker-{len(self.workers)}"
        work = self._folder / name
        work.mkdir(parents=True)
        arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", WORKER_MEMORY]
        arguments += ["--work-dir", str(work), self.master]
        self.workers.append(self._start(name, "org.apache.spark.deploy.worker.Worker", arguments, self._hidden))

    def _start(
        self, name: str, program: str, arguments: Sequence[str], hidden: Sequence[Path] = ()
    ) -> "subprocess.Popen[bytes]":
        import pyspark

        jars = Path(pyspark.__file__).parent / "jars"
        command = [
            str(self._home / "bin" / "java"),
            "-Xmx256m",
            "-Dspark.master.rest.enabled=false",
            "-cp",
            f"{jars}/*",
            program,
            *arguments,
        ]
        if hidden:
            mounts = "".join(f"mount -t tmpfs none '{path}' && " for path in hidden)
            command = ["unshare", "-rm", "sh", "-c", f'{mounts}exec "$@"', "sh", *command]
        folder = self._folder / f"{name}-home"
        folder.mkdir(parents=True)
        # What the driver's environment says about Python must not reach the workers through the environment.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "PYTHON"))}
        environment |= {"JAVA_HOME": str(self._home), "SPARK_HOME": str(jars.parent), "SPARK_LOCAL_IP": "127.0.0.1"}
        # Spark's own scripts tell its version of Scala and a worker's folder for blocks; here nobody runs them.
        environment |= {"SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_DIRS": str(folder)}
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(process)
        return process

    def state(self) -> dict[str, Any]:
        """What the master says of its workers and applications."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
            return told

    def _wait(self, worker_count: int) -> None:
        pause = threading.Event()
        for _ in range(int(START_S_MAX / POLL_S)):
            with contextlib.suppress(OSError, ValueError):
                if sum(worker["state"] == "ALIVE" for worker in self.state()["workers"]) == worker_count:
                    return
            pause.wait(POLL_S)
        logs = "".join(path.read_text(errors="replace")[-2000:] for path in sorted(self._folder.glob("*.log")))
        self.stop()
        raise AssertionError(f"the cluster did not start:\n{logs}")

    def executors(self) -> list[int]:
        """Processes that run tasks."""
        ours = {process.pid for process in self._processes}
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.getsid(int(entry.name)) in ours:
                    if b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    def kill_worker(self, number: int) -> None:
        """The worker, its executors and their Python processes, as if its machine were gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.workers[number].pid, signal.SIGKILL)
        session = self.workers[number].pid
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
        self.workers[number].wait()

    def stop(self) -> None:
        for number in range(len(self.workers)):
            self.kill_worker(number)
        for process in self._processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def cluster_in(folder: Path, *, hidden: Sequence[Path] = ()) -> Iterator[Cluster]:
    cluster = Cluster(folder, hidden=hidden)
    try:
        yield cluster
    finally:
        cluster.stop()


def settings(python: Path | str | None) -> dict[str, str]:
    """What an application on this cluster is started with: small executors, and the interpreter of the workers."""
    conf = {
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    if python is not None:
        conf["spark.pyspark.python"] = str(python)
    return conf


def ran(arguments: Sequence[str], *, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """`oncelog pipeline …` as a user types it, in a folder of the driver's own."""
    command = [sys.executable, "-c", "from oncelog.cli.main import main; main()", "pipeline", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}
    return subprocess.run(
        command, cwd=cwd, env=environment | variables, capture_output=True, text=True, timeout=300, check=False
    )


def conf_arguments(conf: dict[str, str]) -> list[str]:
    return [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
