import pytest

from core.b2b import parse_body
from core.errors import ParameterInvalid
from core.json_keys import RepeatedKey, check_unique


@pytest.mark.parametrize("text", ['{"a": 1, "b": {"a": [{"a": 2}, {"a": 3}]}}', "[]", "5", "{}"])
def test_a_key_may_be_in_several_objects(text: str) -> None:
    check_unique(text.encode())


@pytest.mark.parametrize(("text", "key"), [('{"a": 1, "b": 2, "a": 1}', "a"), ('[{"x": {"b": 1, "\\u0062": 2}}]', "b")])
def test_a_key_that_is_twice_in_one_object_is_named(text: str, key: str) -> None:
    with pytest.raises(RepeatedKey) as caught:
        check_unique(text.encode())
    assert caught.value.key == key


def test_what_a_message_repeats_of_a_key_is_short_and_readable() -> None:
    with pytest.raises(RepeatedKey) as caught:
        check_unique(f'{{"\\ud800{"k" * 500}": 1, "\\ud800{"k" * 500}": 1}}'.encode())
    assert caught.value.key == "?" + "k" * 199


def test_a_partner_is_told_which_key_he_sent_twice() -> None:
    with pytest.raises(ParameterInvalid) as caught:
        parse_body(b'{"platform_id": "ddh", "platform_id": "x"}')
    assert "the key 'platform_id' appears twice" in caught.value.detail.message
