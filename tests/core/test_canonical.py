"""JSON read strictly and its RFC 8785 form: refusals, and equality of meaning under every re-encoding."""

import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from oncelog.core import canonical
from oncelog.core.canonical import JsonRefused

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e16, 1e21, 1e-7, 5e-324, 1.7976931348623157e308, 9007199254740994.0, 1e15]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)


def as_doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_doubles(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_doubles(inner) for inner in value]
    return float(value) if type(value) is int else value


@given(VALUES)
@example({"a": 9007199254740994.0, "b": 1e16, "c": 1e-5, "text 1e5": 0})
def test_the_form_equals_that_of_the_reference_implementation(value: Any) -> None:
    assert canonical.form(canonical.read(json.dumps(value))) == rfc8785.dumps(as_doubles(value))


@given(VALUES, st.randoms(use_true_random=False), st.booleans(), st.sampled_from([None, 1]))
def test_key_order_white_space_escapes_and_number_form_do_not_count(
    value: Any, random: Any, ascii_: bool, indent: int | None
) -> None:
    def spelled(part: Any) -> Any:
        if isinstance(part, dict):
            items = list(part.items())
            random.shuffle(items)
            return {name: spelled(inner) for name, inner in items}
        if isinstance(part, list):
            return [spelled(inner) for inner in part]
        if type(part) is int and random.random() < 0.5:
            return float(part)
        return part

    other = json.dumps(spelled(value), ensure_ascii=ascii_, indent=indent)
    assert canonical.form(canonical.read(other)) == canonical.form(canonical.read(json.dumps(value)))


@given(VALUES, VALUES)
def test_forms_are_equal_exactly_if_values_are(one: Any, other: Any) -> None:
    equal = typed(as_doubles(one)) == typed(as_doubles(other))
    forms = [canonical.form(canonical.read(json.dumps(value))) for value in (one, other)]
    assert (forms[0] == forms[1]) == equal


def typed(value: Any) -> Any:
    """Python takes True for 1.0; JSON does not."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    return (type(value).__name__, value)


@given(VALUES)
def test_what_is_written_again_means_the_same(value: Any) -> None:
    read = canonical.read(json.dumps(value))
    assert canonical.form(canonical.read(canonical.written(read))) == canonical.form(read)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("9007199254740993", "exactly"),
        ("-9007199254740993", "exactly"),
        ('{"a":[12345678901234567890]}', "exactly"),
        ("1" + "0" * 309, "range"),
        ("9" * 5_000, "range"),
        ("1e400", "range"),
        ("-1e999999", "range"),
        ("NaN", "NaN"),
        ("[Infinity]", "Infinity"),
        ("[-Infinity]", "-Infinity"),
        ('{"a":1,"a":1}', "'a' occurs twice"),
        ('{"a":1,"\\u0061":2}', "'a' occurs twice"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00":1}', "surrogate"),
        ('"\\ud800\\u0041"', "surrogate"),
        ("[" * 101 + "]" * 101, "100 deep"),
        ("[" * 200_000, "100 deep"),
        ("", "not JSON"),
        ("\ufeff1", "not JSON"),
        ("1 2", "not JSON"),
        ("01", "not JSON"),
        ("'a'", "not JSON"),
        ('"\x01"', "not JSON"),
        ('{"a":1,}', "not JSON"),
        (b'"\xff"', "byte 1 is not UTF-8"),
    ],
)
def test_a_text_without_a_form_is_refused_and_the_reason_is_named(text: str | bytes, because: str) -> None:
    with pytest.raises(JsonRefused, match=because):
        canonical.read(text)


@pytest.mark.parametrize("text", ["9007199254740992", "1152921504606846976", "100000000000000000000"])
def test_a_large_integer_that_a_double_holds_exactly_is_taken(text: str) -> None:
    assert canonical.form(canonical.read(text)) == rfc8785.dumps(float(text))


def test_brackets_inside_of_strings_are_not_depth() -> None:
    text = json.dumps(["[" * 200 + '"{' * 200])
    assert canonical.read(text) == ["[" * 200 + '"{' * 200]


def test_minus_zero_is_zero() -> None:
    assert canonical.form(canonical.read("-0.0")) == canonical.form(canonical.read("-0")) == b"0"
    assert not math.copysign(1, 0) < 0
