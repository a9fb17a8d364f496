"""Resolving a model name to a session specification: checks of options, and which settings apply."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SETTINGS, SessionSpec, Settings
from workbench.families import FAMILIES
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.registry.resolve import resolve
from workbench.registry.settings import HALF_PRECISION, checked_settings, settings_for


def card(family: str, kind: str = "directory", **fields: Any) -> Card:
    return Card("m", "m", family, {kind: "/nowhere"}, **fields)


def test_parameters_of_open_match_the_settings() -> None:
    parameters = dict(inspect.signature(Registry.open).parameters)
    for name in ("self", "model", "runtime", "on_progress", "options"):
        del parameters[name]
    assert parameters.keys() == SETTINGS.keys()
    assert {each.default for each in parameters.values()} == {None}


def test_resolve_returns_a_complete_session_spec(tmp_path: Path) -> None:
    model = tiny_sensevoice(tmp_path / "tiny")
    spec = resolve(model, settings={"threads": 2, "dtype": None}, options={"language": "en"})
    assert spec == SessionSpec(str(model), "sensevoice", "pytorch", model.resolve(), Settings(threads=2))


def test_resolve_does_not_look_up_a_given_card(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = registry.card(tiny_sensevoice(tmp_path / "tiny"))
    monkeypatch.setattr("workbench.registry.resolve.find_card", lambda *_: pytest.fail("looked up again"))
    assert resolve(known).name == known.id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lang": "en"}, "m has no option lang"),
        ({"vad": "nobody"}, "option vad is 'nobody'; expected auto"),
        ({"language": 3}, "option language"),
    ],
)
def test_options_are_checked_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("workbench.registry.resolve.fetch", lambda *_: pytest.fail("the checkpoint was fetched"))
    with pytest.raises(BadInput, match=message):
        resolve(card("sensevoice"), options=options)


def test_the_registry_checks_options_before_it_loads(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no option lang; did you mean language"):
        registry.open(tiny_sensevoice(tmp_path / "tiny"), options={"lang": "en"})
    assert registry.residents() == []


# Settings that apply.


def runs() -> list[tuple[str, str]]:
    return [(family, name) for family in FAMILIES for name in RUNTIMES if FAMILIES[family].cell(name).module]


@pytest.mark.parametrize(("family", "runtime"), runs())
def test_only_listed_setting_choices_are_accepted(family: str, runtime: str) -> None:
    """A listed choice may need `stepwise` beside it, where the runtime has that."""
    choices = settings_for(card(family), runtime)
    for name, spec in SETTINGS.items():
        for value in spec.choices:
            ways: list[dict[str, Any]] = [{}, {"stepwise": True}] if "stepwise" in choices else [{}]
            accepted = any(accepts({name: value, **way}, family, runtime) for way in ways)
            default = value == spec.default  # which is never refused
            assert accepted == (default or (name in choices and value in choices[name].choices)), (name, value)


def accepts(settings: dict[str, Any], family: str, runtime: str) -> bool:
    try:
        checked_settings(settings, card(family), runtime)
    except BadInput:
        return False
    return True


@pytest.mark.parametrize(("dtype", "stepwise"), [*itertools.product(RUNTIMES["pytorch"].dtypes, [False, True])])
def test_stepwise_is_accepted_only_with_half_precision(dtype: str, stepwise: bool) -> None:
    expected = dtype in HALF_PRECISION or not stepwise
    assert accepts({"dtype": dtype, "stepwise": stepwise}, "sensevoice", "pytorch") == expected
    assert accepts({"dtype": dtype, "stepwise": stepwise}, "causal_lm", "pytorch") == expected


def test_server_model_has_no_settings() -> None:
    assert settings_for(card("causal_lm", "server"), "vllm") == {}


def test_gguf_file_has_no_quantization_setting() -> None:
    assert list(settings_for(card("causal_lm", "gguf"), "gguf")) == ["threads", "kv_cache"]
    assert list(settings_for(card("sensevoice", "gguf"), "gguf")) == ["threads"]
