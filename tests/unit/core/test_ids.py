import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ids import digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("sent", "returned"),
    [
        (1e22, 10**22),
        (-0.0, 0.0),
        (1.0, 1),
        (-3.4028234663852886e38, -340282346638528860000000000000000000000),
        ({"b": [1e16], "a": None}, {"a": None, "b": [10**16]}),
        ((1, 2), [1, 2]),
    ],
)
def test_values_that_jsonb_spells_differently_have_one_digest(sent: object, returned: object) -> None:
    assert digest(sent) == digest(returned)


@pytest.mark.parametrize(("one", "other"), [(1, 2), (1, True), (0, None), ("1", 1), (0.1, 0.2), ([], {}), (1.5, 1)])
def test_different_values_have_different_digests(one: object, other: object) -> None:
    assert digest(one) != digest(other)


@given(JSON)
def test_every_json_value_has_a_digest_and_keeps_it(value: object) -> None:
    assert digest(value) == digest(value)
    assert len(digest(value)) == 64


def test_the_order_of_keys_does_not_matter() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
