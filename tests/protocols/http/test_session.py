"""What a connection remembers of its X- producers, against every order in which answers may come."""

from oncelog import limits
from oncelog.protocols.http.session import Session

KEY = ("t", 0, "p")


def test_last_epoch_is_remembered_and_never_runs_back() -> None:
    session = Session()
    assert session.epoch_of(KEY) is None
    session.used(KEY, 2)
    session.used(KEY, 1)
    assert session.epoch_of(KEY) == 2
    assert session.epoch_of(("t", 1, "p")) is None


def test_sequence_0_forgets_and_a_late_answer_of_the_old_epoch_does_not_bring_it_back() -> None:
    session = Session()
    session.used(KEY, 1)
    session.forget(KEY)
    assert session.epoch_of(KEY) is None
    session.used(KEY, 1)
    assert session.epoch_of(KEY) is None, "that answer was on its way when the new run began"
    session.used(KEY, 2)
    assert session.epoch_of(KEY) == 2


def test_two_sequences_0_in_a_row_leave_the_newest_behind() -> None:
    session = Session()
    session.used(KEY, 1)
    session.forget(KEY)
    session.forget(KEY)
    session.used(KEY, 1)
    assert session.epoch_of(KEY) is None
    session.used(KEY, 2)
    session.forget(KEY)
    session.used(KEY, 2)
    assert session.epoch_of(KEY) is None


def test_what_a_connection_remembers_is_bounded_and_the_oldest_goes() -> None:
    session = Session()
    for number in range(limits.HTTP_CONNECTION_EPOCHS_MAX):
        session.used(("t", 0, f"p{number}"), 1)
    session.used(("t", 0, "p0"), 1)
    session.used(("t", 0, "one more"), 1)
    assert session.epoch_of(("t", 0, "p1")) is None, "the one that was not used for longest"
    assert session.epoch_of(("t", 0, "p0")) == 1
