"""LoRA changes of a checkpoint to its language model: separated from the weights, and merged into any rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_fireredasr import LAYERS, RANK, lora_tensors, tiny_fireredasr
from tests.support.tiny_language import SHAPE
from workbench.conversion.language_changes import Change, merged, read_changed_language
from workbench.families.speech_llm.fireredasr import LANGUAGE_DIRECTORY
from workbench.runtimes.pytorch.fireredasr import read_checkpoint


def test_lora_changes_are_separated_from_the_weights(tmp_path: Path) -> None:
    directory = tiny_fireredasr(tmp_path / "firered", lora_alpha=6)
    language = read_changed_language(read_checkpoint(directory))
    layers = range(SHAPE["num_hidden_layers"])
    assert set(language.changes) == {f"model.layers.{layer}.{name}.weight" for layer in layers for name in LAYERS}
    assert set(language.changes) < set(language.tensors)
    pairs = lora_tensors()
    for name, change in language.changes.items():
        prefix = f"llm.base_model.model.{name.removesuffix('.weight')}"
        assert torch.equal(change.a, pairs[f"{prefix}.lora_A.default.weight"])
        assert torch.equal(change.b, pairs[f"{prefix}.lora_B.default.weight"])
        assert change.scale == 6 / RANK
    assert "firered/model.pth.tar" in language.where and LANGUAGE_DIRECTORY in language.where
    assert language.regions, "both files are mapped, not read"


@given(
    outputs=st.integers(1, 9),
    inputs=st.integers(1, 9),
    rank=st.integers(1, 4),
    cut=st.integers(0, 9),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 99),
)
def test_lora_merge_of_any_row_range_matches_the_definition(
    outputs: int, inputs: int, rank: int, cut: int, dtype: torch.dtype, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    weight, a, b = (
        torch.randn(shape, generator=draw).to(dtype) for shape in ((outputs, inputs), (rank, inputs), (outputs, rank))
    )
    change, cut = Change(a, b, 0.25), min(cut, outputs)
    pieces = [merged(weight[:cut], change, 0, cut), merged(weight[cut:], change, cut, outputs)]
    slow = weight.double().numpy().copy()
    for row in range(outputs):
        for step in range(rank):
            slow[row] += 0.25 * float(b[row, step]) * a[step].double().numpy()
    result = torch.cat(pieces)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), slow, rtol=0, atol=1e-5)


def test_complete_language_weights_in_the_checkpoint_have_no_lora_changes(tmp_path: Path) -> None:
    directory = tiny_fireredasr(tmp_path / "firered")
    checkpoint = read_checkpoint(directory)
    base = {key: value.clone() for key, value in read_changed_language(checkpoint).tensors.items()}
    (directory / LANGUAGE_DIRECTORY / "model.safetensors").unlink()
    language = read_changed_language(replace(checkpoint, language=base))
    assert language.tensors.keys() == base.keys() and not language.changes
    assert language.where == checkpoint.where
