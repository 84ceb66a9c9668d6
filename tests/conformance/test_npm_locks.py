"""The npm lock files pin everything by hash and name no registry: where packages come from is up to the machine."""

import json
from pathlib import Path

import pytest

from bench.http_node import LOCKED_FOLDERS


@pytest.mark.parametrize("folder", LOCKED_FOLDERS, ids=lambda folder: folder.name)
def test_lock_file_holds_names_versions_and_hashes_and_no_address(folder: Path) -> None:
    text = (folder / "package-lock.json").read_text()
    assert "://" not in text
    assert '"resolved"' not in text
    packages = json.loads(text)["packages"]
    del packages[""]
    assert packages
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())


@pytest.mark.parametrize("folder", LOCKED_FOLDERS, ids=lambda folder: folder.name)
def test_lock_file_holds_the_binaries_of_every_platform(folder: Path) -> None:
    # npm writes only what it finds, then refuses to install from a lock file with holes.
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    wanted = {name for package in packages.values() for name in package.get("optionalDependencies", ())}
    assert wanted <= {path.rpartition("node_modules/")[2] for path in packages}
