"""Faults planted into copies of demo models: they change the model, and the comparison finds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.panels.conftest import needs
from workbench.core.errors import BadInput
from workbench.core.sides import Side
from workbench.parity_lab import run_parity
from workbench.parity_lab.breaking import FAULTS, LANGUAGE_CONFIG, broken_copy, find_fault, planted_side
from workbench.registry.registry import Registry
from workbench.registry.sources import assets


def test_every_fault_is_found_by_name_and_refers_to_a_demo_model(registry: Registry) -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert find_fault(fault.name) is fault
        assert registry.card(fault.model).kind == "demo"
        assert bool(fault.side) != (fault.plant is not None)
    with pytest.raises(BadInput, match="no fault 'nothing' to plant; expected one of cmvn, epsilon"):
        find_fault("nothing")
    with pytest.raises(BadInput, match="not a change of a checkpoint"):
        broken_copy(registry, find_fault("cmvn"), Path("nowhere"))


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("epsilon", ("rms_norm_eps",), 1e-3), ("rope", ("rope_parameters", "rope_theta"), 1e4)],
)
def test_planted_fault_changes_a_single_value_of_the_copied_checkpoint(
    registry: Registry, tmp_path: Path, name: str, place: tuple[str, ...], value: float
) -> None:
    copy = broken_copy(registry, find_fault(name), tmp_path)
    original = assets() / "demo-funasr-nano"
    copied, expected = (json.loads((each / LANGUAGE_CONFIG).read_text(encoding="utf-8")) for each in (copy, original))
    inner = expected
    for part in place[:-1]:
        inner = inner[part]
    assert inner[place[-1]] != value
    inner[place[-1]] = value
    assert copied == expected
    changed = [
        path
        for path in original.rglob("*")
        if path.is_file() and path.read_bytes() != (copy / path.relative_to(original)).read_bytes()
    ]
    assert changed == [original / LANGUAGE_CONFIG]


@pytest.mark.slow
def test_a_skipped_layer_is_found(registry: Registry, tmp_path: Path) -> None:
    fault = find_fault("layer-2")
    needs(registry, "pytorch", fault.model)
    sound = assets() / "samples" / "three_seven_one.wav"
    side = planted_side(registry, fault, sound, tmp_path)
    assert isinstance(side, Side) and [path.name for path in tmp_path.iterdir()] == ["planted.safetensors"]
    with run_parity(registry, fault.model, sound, "pytorch:f32", [side], stages="llm.layers.*", exact=False) as run:
        assert run.outcomes[0].verdict is not None and run.outcomes[0].comparison is not None
        first = next(each.stage for each in run.outcomes[0].comparison.stages if not each.passes)
    assert first == fault.first
