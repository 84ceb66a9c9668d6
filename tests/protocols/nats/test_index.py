"""The index of a stream by subject, held against plain lists."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats.index import Index

NAMES = ["a", "a.b", "a.c", "b", "b.b"]
FILTERS = [[], ["a"], ["a.*"], ["a.>", "b"], ["*"], [">"], ["none"]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 4), st.integers(0, 3)),
        st.tuples(st.just("remove"), st.integers(0, 60), st.just(0)),
    ),
    max_size=80,
)


@given(STEPS, st.integers(0, 5))
def test_index_is_what_plain_lists_are(steps: list[tuple[str, int, int]], start: int) -> None:
    index, live = Index(start), {}
    next_ = start
    for kind, number, gap in steps:
        if kind == "add":
            next_ += gap
            index.add(next_, NAMES[number], 10 + number, next_ * 100)
            live[next_] = NAMES[number]
            next_ += 1
        else:
            row = index.remove(number)
            assert (row is not None) == (number in live)
            live.pop(number, None)
        assert index.next == next_
        assert index.count == len(live)
        assert index.bytes == sum(10 + NAMES.index(name) for name in live.values())
        assert {name: row.count for name, row in index.rows.items()} == {
            name: list(live.values()).count(name) for name in set(live.values())
        }
    for name, row in index.rows.items():
        mine = [offset for offset, each in live.items() if each == name]
        assert (index.first_of(row), row.last) == (mine[0], mine[-1])
    assert index.last_live() == max(live, default=-1)
    if live:
        assert index.floor == min(live)
    for filters in FILTERS:
        mine = [offset for offset, name in live.items() if not filters or subjects.any_matches(filters, name)]
        for begin in range(next_ + 2):
            after = [offset for offset in mine if offset >= begin]
            assert index.next_live(begin, filters) == (after[0] if after else index.next)
            assert index.count_from(begin, filters) == len(after)
        assert index.live(0, next_, filters) == mine
        last = {name: max(o for o in mine if live[o] == name) for name in {live[o] for o in mine}}
        assert index.last_per_subject(filters) == sorted(last.values())
        below = {o for o in mine if o < next_ // 2}
        assert index.last_per_subject(filters, next_ // 2) == sorted(
            {name: max(o for o in below if live[o] == name) for name in {live[o] for o in below}}.values()
        )
