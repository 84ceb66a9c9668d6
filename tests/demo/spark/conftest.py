"""Whole runs with a real Spark: minutes, so their folder can be left out. Without pyspark nothing is here."""

import importlib.util

import pytest

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("pyspark") is None else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "spark":
            # Two virtual machines have to start, one after the other, and a loaded machine takes its time.
            item.add_marker(pytest.mark.timeout(900))
