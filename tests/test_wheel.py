"""What a user installs: a source archive, the wheel that pip builds from it, and a server that starts from that wheel.

The wheel is built with an interpreter that has nothing installed, as on a user's machine: the packages that mypyc must
see have to come from `[build-system].requires`.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
IS_COMPILED = "import oncelog.core.producer as module; print(not module.__file__.endswith('.py'))"

pytestmark = pytest.mark.timeout(900)


def environment(**extra: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name != "ONCELOG_PURE"}, **extra}


def pip(python: Path, *arguments: str, **extra: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, env=environment(**extra), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def empty_environment(folder: Path) -> Path:
    """The interpreter of a new environment that holds pip and nothing else."""
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin" / "python"


def source_archive(folder: Path) -> Path:
    """What would be published, built from the files that git knows."""
    checkout = folder / "checkout"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.split("\0"):
        source = ROOT / name
        if name and source.is_file() and not name.startswith(("tests/", "bench/", "docs/")):
            target = checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    build = "import setuptools.build_meta as backend; print(backend.build_sdist('dist'))"
    subprocess.run(
        [sys.executable, "-c", build], cwd=checkout, env=environment(ONCELOG_PURE="1"), capture_output=True, check=True
    )
    (archive,) = (checkout / "dist").iterdir()
    return archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_archive(tmp_path_factory.mktemp("sdist"))


@contextlib.contextmanager
def serving(python: Path, data: Path) -> Iterator[str]:
    """`oncelog serve` of the installed wheel; the URL of its HTTP face."""
    command = [str(python.with_name("oncelog")), "serve", "--data", str(data), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stdout is not None
            ready = re.search(r"http=(\S+)", process.stdout.readline())
            assert ready is not None
            yield f"http://{ready[1]}"
        finally:
            process.terminate()
    assert process.returncode == 0


def ask(method: str, url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": "text/plain"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: bytes = response.read()
    return answer


@pytest.mark.parametrize("pure", [False, True], ids=["compiled", "pure"])
def test_wheel_installs_and_serves(archive: Path, tmp_path: Path, pure: bool) -> None:
    python = empty_environment(tmp_path / "env")
    extra = {"ONCELOG_PURE": "1"} if pure else {}
    pip(python, "wheel", "--no-deps", "--wheel-dir", str(tmp_path / "wheel"), str(archive), **extra)
    (wheel,) = (tmp_path / "wheel").iterdir()
    pip(python, "install", "--constraint", str(versions(tmp_path)), str(wheel))

    told = subprocess.run([python, "-c", IS_COMPILED], capture_output=True, text=True, check=True, env=environment())
    can_compile = shutil.which("cc") is not None
    assert told.stdout.strip() == str(can_compile and not pure)
    doctor = subprocess.run(
        [python.with_name("oncelog"), "doctor", "--json", "--data", str(tmp_path), "--http", "127.0.0.1:0"],
        capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    found = {check["name"]: check["found"] for check in json.loads(doctor.stdout)["checks"]}
    assert (found["hot path"] == "compiled") == (can_compile and not pure)

    with serving(python, tmp_path / "data") as url:
        ask("PUT", f"{url}/v1/stream/greetings")
        ask("POST", f"{url}/v1/stream/greetings", b"hello")
        assert ask("GET", f"{url}/v1/stream/greetings?offset=-1") == b"hello"


def versions(folder: Path) -> Path:
    """The pinned versions, without hashes, for what the wheel itself depends on."""
    pins = re.findall(r"^[\w.-]+==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    path = folder / "versions.txt"
    path.write_text("\n".join(pins))
    return path
