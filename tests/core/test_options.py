"""Options: their declaration, value checks, and a one-line error for each wrong value."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions, OptionSpec, build_options, check_value, option, option_specs
from workbench.core.settings import SETTINGS
from workbench.families import FAMILIES


@dataclass(frozen=True)
class Options:
    language: str = option("auto", "the language", ("auto", "en", "zh"))
    itn: bool = option(False, "figures")
    gain: float = option(1.0, "loudness", minimum=0.5)
    beam: int = option(1, "hypotheses kept", minimum=1, maximum=9)
    hotwords: tuple[str, ...] = option((), "words to expect")


def build(**given: Any) -> Options:
    return build_options(Options, given, "a model")


def test_defaults_are_the_declared_ones() -> None:
    assert build() == Options("auto", False, 1.0, 1, ())


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"language": "zh"}, "zh"),
        ({"itn": True}, True),
        ({"gain": 2}, 2.0),
        ({"gain": np.float32(0.5)}, 0.5),
        ({"beam": np.int64(4)}, 4),
        ({"hotwords": ["one", "two"]}, ("one", "two")),
    ],
)
def test_values_are_converted_to_the_declared_type(given: dict[str, Any], kept: Any) -> None:
    [name] = given
    value = getattr(build(**given), name)
    assert value == kept and type(value) is type(kept)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"language": "xx"}, "option language of a model is 'xx'; expected one of auto, en, zh"),
        ({"language": 3}, "option language of a model is 3; expected one of auto, en, zh"),
        ({"language": None}, "option language of a model is None; expected one of auto, en, zh"),
        ({"itn": 1}, "option itn of a model is 1; expected true or false"),
        ({"itn": "yes"}, "option itn of a model is 'yes'; expected true or false"),
        ({"gain": True}, "option gain of a model is True; expected a number"),
        ({"gain": "2"}, "option gain of a model is '2'; expected a number"),
        ({"gain": float("nan")}, "option gain of a model is nan; expected a finite number"),
        ({"gain": float("inf")}, "option gain of a model is inf; expected a finite number"),
        ({"gain": 0.25}, "option gain of a model is 0.25; expected at least 0.5"),
        ({"beam": True}, "option beam of a model is True; expected a whole number"),
        ({"beam": 2.0}, "option beam of a model is 2.0; expected a whole number"),
        ({"beam": 0}, "option beam of a model is 0; expected 1 to 9"),
        ({"beam": 10}, "option beam of a model is 10; expected 1 to 9"),
        ({"hotwords": "one"}, "option hotwords of a model is 'one'; expected a list of texts"),
        ({"hotwords": ["one", 2]}, "option hotwords of a model is ['one', 2]; expected a list of texts"),
        ({"langage": "en"}, "a model has no option langage; did you mean language?"),
        ({"x": 1}, "a model has no option x; it has language, itn, gain, beam, hotwords."),
    ],
)
def test_wrong_value_raises_one_line_error_with_the_expected_values(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        build(**given)
    assert str(caught.value) == sentence


def test_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(BadInput, match="expected a finite number"):
        build(gain=10**400)


def test_error_message_for_a_huge_value_is_short() -> None:
    with pytest.raises(BadInput) as caught:
        build(language=["word"] * 100_000)
    assert len(str(caught.value)) < 200


def test_option_specs_keep_the_order_of_declaration() -> None:
    specs = option_specs(Options)
    assert [spec.name for spec in specs] == ["language", "itn", "gain", "beam", "hotwords"]
    assert [spec.kind for spec in specs] == [str, bool, float, int, tuple]
    assert (specs[0].choices, specs[2].minimum, specs[3].help) == (("auto", "en", "zh"), 0.5, "hypotheses kept")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_option_of_every_family_has_help_and_a_valid_default(family: str) -> None:
    options_class = FAMILIES[family].options_class
    specs = option_specs(options_class)
    assert all(spec.help for spec in specs)
    defaults = {spec.name: spec.default for spec in specs}
    assert build_options(options_class, defaults, family) == options_class()


def test_a_segment_cap_below_a_second_is_refused() -> None:
    with pytest.raises(BadInput, match=r"max_segment_seconds of a model is 0.5; expected 1 to 600$"):
        build_options(ListeningOptions, {"max_segment_seconds": 0.5}, "a model")


def test_none_equals_an_unset_option_without_default() -> None:
    assert build_options(ListeningOptions, {"end_silence_ms": None}, "a model") == ListeningOptions()
    with pytest.raises(BadInput, match=r"max_segment_seconds of a model is None; expected a number$"):
        build_options(ListeningOptions, {"max_segment_seconds": None}, "a model")


@dataclass(frozen=True)
class Limited:
    share: float = option(1.0, "above 0", above=0.0, maximum=1.0)
    heat: float = option(0.0, "0 is off", smallest=0.01, maximum=100.0)
    power: float = option(0.0, "on both sides", minimum=-10.0, maximum=10.0)
    top: int = option(1, "only from above", maximum=5)
    free: float = option(1.0, "any")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"share": 0.0}, "more than 0, at most 1"),
        ({"share": 3}, "more than 0, at most 1"),
        ({"heat": 0.001}, "0, or 0.01 to 100"),
        ({"heat": -1}, "0, or 0.01 to 100"),
        ({"power": 11}, "-10 to 10"),
        ({"top": 6}, "at most 5"),
    ],
)
def test_limits_are_written_as_text_in_errors_and_help(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        build_options(Limited, given, "a model")
    assert str(caught.value).endswith(f"; expected {expected}")
    [name] = given
    [spec] = (spec for spec in option_specs(Limited) if spec.name == name)
    assert spec.limits == expected and spec.help_with_limits == f"{spec.help} ({expected})"
    ended = replace(spec, help="as usual (default: 2)")
    assert ended.help_with_limits == f"as usual (default: 2; {expected})"


def test_values_within_the_limits_are_accepted() -> None:
    given = {"share": 1e-9, "heat": 0.0, "power": -10.0, "top": -3, "free": 1e300}
    assert build_options(Limited, given, "a model") == Limited(**given)  # type: ignore[arg-type]
    assert build_options(Limited, {"heat": 0.01}, "a model").heat == 0.01
    assert {spec.name: spec.help_with_limits for spec in option_specs(Limited)}["free"] == "any"


NUMBERS = [
    (name, spec)
    for name, family in FAMILIES.items()
    for spec in option_specs(family.options_class)
    if spec.kind in (int, float)
] + [("settings", spec) for spec in SETTINGS.values() if spec.kind in (int, float)]


@pytest.mark.parametrize(("of", "spec"), NUMBERS, ids=lambda each: each if isinstance(each, str) else each.name)
def test_every_number_has_limits_on_both_sides(of: str, spec: OptionSpec) -> None:
    assert spec.maximum is not None and (spec.minimum, spec.above, spec.smallest).count(None) == 2
    assert spec.default is None or spec.allows(spec.default)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(NUMBERS), st.floats(allow_nan=True) | st.integers(-(10**12), 10**20))
def test_number_is_accepted_within_the_limits_and_raises_one_line_error_outside(
    of: tuple[str, OptionSpec], number: float
) -> None:
    spec = of[1]
    fits = math.isfinite(number) and spec.allows(number) and (spec.kind is float or isinstance(number, int))
    if fits:
        found = check_value(spec, number, "it is this")
        assert spec.allows(found) and type(found) is spec.kind
        return
    with pytest.raises(BadInput, match=r"^it is this; expected [^\n]+$"):
        check_value(spec, number, "it is this")
