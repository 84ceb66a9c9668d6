"""Environments of Python for workers that have nothing but what somebody has installed for them.

`installed` has the package and leads to the other packages of this checkout's environment, as a machine would on which
somebody ran pip. `packed` is an archive that holds everything that a worker needs, for `--archives`.
"""

import importlib.metadata as metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

from tests.spark.cluster.standalone import ROOT

SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "src", "tools")
WORKER_PACKAGES = ("oncelog", "pyarrow", "deltalake")
"""What tasks import, with what these need. PySpark is on the workers as part of Spark."""


def _site_packages(environment: Path) -> Path:
    (found,) = (environment / "lib").glob("python3*/site-packages")
    return found


def _made(folder: Path) -> Path:
    venv.create(folder, symlinks=True, with_pip=False)
    return folder


def _install(folder: Path, scratch: Path) -> None:
    """The package itself, built from a copy: a build in the checkout would leave files there."""
    copy = scratch / "copy"
    copy.mkdir(parents=True)
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, copy / name)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(_site_packages(folder))]
    command = [sys.executable, "-m", "pip", "install", *options, str(copy)]
    subprocess.run(command, check=True, env={**os.environ, "ONCELOG_PURE": "1"})


def installed(folder: Path) -> Path:
    """Its interpreter."""
    environment = _made(folder / "environment")
    _install(environment, folder)
    # Not what that folder's own .pth files say: one of them leads to the checkout.
    (_site_packages(environment) / "others.pth").write_text(_site_packages(Path(sys.prefix)).as_posix() + "\n")
    return environment / "bin" / "python"


def packed(folder: Path) -> Path:
    """The archive."""
    environment = _made(folder / "packed")
    _install(environment, folder / "build")
    for name in _needed("oncelog") | _needed("pyarrow") | _needed("deltalake"):
        if name != "oncelog":
            _copy_distribution(name, _site_packages(environment))
    # Spark unpacks .tar by itself, without permissions and without links that lead outside; .tar.gz goes to tar.
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        # Spark refuses an archive with an entry for the folder itself.
        for path in sorted(environment.iterdir()):
            tar.add(path, path.name)
    return archive


def _needed(name: str) -> set[str]:
    """The distribution and those that it cannot do without."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        for text in metadata.requires(one) or ():
            if "extra ==" not in text and (match := re.match(r"[\w.-]+", text)):
                try:
                    waiting.append(metadata.distribution(match[0]).metadata["Name"])
                except metadata.PackageNotFoundError:
                    continue  # for another system or an older Python
    return found


def _copy_distribution(name: str, target: Path) -> None:
    distribution = metadata.distribution(name)
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if ".." in file.parts or not source.is_file():
            continue
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target / file)
