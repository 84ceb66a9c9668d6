"""Settings for every test. Fixtures live beside the tests that use them."""

import signal

import pytest
from hypothesis import settings

from tests.compiled_code import IS_COMPILED, Guard, guard_replacements, is_stale, run_from_source

# A shared machine stalls now and then: a slow example is no failure, pytest's timeout catches the hung ones. The blob
# lets anyone replay a failure that only another machine found.
settings.register_profile("oncelog", deadline=None, print_blob=True)
settings.load_profile("oncelog")

# A shell hands an ignored SIGINT on to what it starts in the background, and every process of a test would inherit it:
# those that are interrupted would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if IS_COMPILED:
    guard_replacements()


def pytest_sessionstart() -> None:
    if is_stale():
        pytest.exit("what is compiled is older than its sources: run make setup", returncode=3)


def runs_from_source(item: pytest.Item) -> bool:
    return IS_COMPILED and item.get_closest_marker("from_source") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    Guard.is_off = runs_from_source(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not runs_from_source(pyfuncitem):
        return None
    assert run_from_source(pyfuncitem.nodeid).startswith("1 passed")
    return True
