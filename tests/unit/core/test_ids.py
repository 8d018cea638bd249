import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ids import digest, job_id_of_key, key_of_job_id, split_task_id, task_id

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


def test_the_id_of_a_keyed_job_says_whose_key_it_is_and_which_body() -> None:
    body = {"workflow_id": "w", "inputs": {"a": 1, "b": None}}
    one = job_id_of_key("ada", "k", body)
    assert one == job_id_of_key("ada", "k", {"inputs": {"b": None, "a": 1}, "workflow_id": "w"})
    assert key_of_job_id(one) == key_of_job_id(job_id_of_key("ada", "k", {"workflow_id": "w"}))
    others = (("ada", "k", {"workflow_id": "w"}), ("bob", "k", body), ("ada", "K", body))
    assert len({one, *(job_id_of_key(*other) for other in others)}) == 4
    assert len({key_of_job_id(one), *(key_of_job_id(job_id_of_key(*other)) for other in others)}) == 3
    assert len(one) == 64
    assert split_task_id(task_id(one, "n_1", 0)) == (one, "n_1", 0)
