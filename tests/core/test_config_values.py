"""Reading whole numbers from a configuration file: accepted values and error messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.config_values import whole_number
from workbench.core.errors import BadInput


@given(st.integers(-5, 5), st.integers(-5, 5), st.none() | st.integers(-5, 5))
def test_whole_number_is_accepted_exactly_when_in_range(value: int, minimum: int, maximum: int | None) -> None:
    section = {"layers": value}
    if minimum <= value and (maximum is None or value <= maximum):
        assert whole_number(section, "layers", "layers", minimum=minimum, maximum=maximum) == value
    else:
        with pytest.raises(BadInput, match=f"layers is {value}; expected a whole number"):
            whole_number(section, "layers", "layers", minimum=minimum, maximum=maximum)


@pytest.mark.parametrize("value", [True, 2.0, "2", None, [2], float("nan")])
def test_values_of_other_types_are_refused(value: object) -> None:
    with pytest.raises(BadInput, match="expected a whole number of at least 1"):
        whole_number({"layers": value}, "layers", "layers", default=3)


def test_missing_value_gets_the_default_or_raises_an_error() -> None:
    assert whole_number({}, "layers", "layers", default=3) == 3
    with pytest.raises(BadInput, match=r"conf\.layers is missing; expected a whole number from 1 to 9"):
        whole_number({}, "layers", "conf.layers", maximum=9)


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(BadInput) as raised:
        whole_number({"layers": "x" * 10_000}, "layers", "layers")
    assert len(str(raised.value)) < 200
