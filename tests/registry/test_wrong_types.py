"""Values of a wrong type in the calls of a registry, a search, a picture and a trace: one sentence for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench
from workbench.core.errors import BadInput
from workbench.registry.registry import Registry

WRONG = (None, 5, b"demo/sensevoice", ["demo/sensevoice"])
CARD = "demo/sensevoice"
SAMPLE = "assets/samples/three_seven_one.wav"


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("name", ["open", "card", "options_class", "chat_options_class"])
def test_a_model_is_a_name_or_a_path(registry: Registry, name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"the model is of type {type(value).__name__}; expected its id, or the path of"):
        getattr(registry, name)(value)


@pytest.mark.parametrize("value", [*WRONG, CARD])
def test_availability_takes_a_card(registry: Registry, value: Any) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: registry.availability(value, "pytorch"),
        lambda: registry.default_runtime(value),
        lambda: registry.weights(value, "gguf"),
    )
    for call in calls:
        with pytest.raises(BadInput, match=f"the card is of type {type(value).__name__}; expected what `Registry.card"):
            call()


@pytest.mark.parametrize("runtime", ["onnx", 5, ["gguf"], np.array(3)])
def test_an_unknown_runtime_is_refused(registry: Registry, runtime: Any) -> None:
    card = registry.card(CARD)
    calls: tuple[Callable[[], object], ...] = (
        lambda: registry.availability(card, runtime),
        lambda: registry.weights(card, runtime),
    )
    for call in calls:
        with pytest.raises(BadInput, match=r"^there is no runtime .*; expected one of pytorch, gguf, vllm"):
            call()


@pytest.mark.parametrize("options", [5, "itn", ["itn"]])
def test_options_are_a_mapping(registry: Registry, options: Any) -> None:
    with pytest.raises(BadInput, match=f"^the options are of type {type(options).__name__}; expected a mapping"):
        registry.open(CARD, options=options)


@pytest.mark.parametrize("value", [0, -5, True, "8 GB", float("nan"), Path("x")])
def test_memory_is_a_number_of_bytes(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^memory_bytes is .*; expected a number of bytes"):
        Registry(value)


@pytest.mark.parametrize("value", [None, 5, b"a.safetensors", []])
def test_the_place_of_a_trace_is_a_path(value: Any) -> None:
    trace = workbench.Trace({"x": np.zeros(1)}, {})
    for call in (workbench.Trace.load, trace.save):
        with pytest.raises(BadInput, match=f"trace is of type {type(value).__name__}; expected a path"):
            call(value)


def test_searches_and_pictures_name_the_wrong_value(registry: Registry) -> None:
    search = workbench.CtcBeamSearch(["<blk>", "a"])
    calls: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: workbench.CtcBeamSearch(None), "the list of tokens is of type NoneType"),  # type: ignore[arg-type]
        (lambda: search.decode_batch(5), "the logits are of type int; expected a list"),  # type: ignore[arg-type]
        (lambda: search.decode_batch("a.npy"), "the logits are of type str; expected a list"),
        (lambda: workbench.visualise(SAMPLE, view=[], registry=registry), r"there is no view '\[\]'"),
        (lambda: workbench.visualise(SAMPLE, against=5, registry=registry), "the second side is of type int"),
    )
    for call, sentence in calls:
        with pytest.raises(BadInput, match=sentence):
            call()
