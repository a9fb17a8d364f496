"""Best CTC paths computed by torch on the device equal those computed by numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.core.errors import NotFinite
from workbench.decoding.confidence import probabilities
from workbench.families.sanm.sensevoice import SenseVoiceOptions, read_sensevoice
from workbench.pipelines.recognition.sensevoice import SenseVoicePipeline
from workbench.runtimes.pytorch.best_path import best_paths
from workbench.runtimes.pytorch.sensevoice import SenseVoiceOnDevice, open_sensevoice

BLANK = 0


@given(
    seed=st.integers(0, 2**32 - 1),
    frames=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    vocabulary=st.integers(2, 9),
    banned=st.sampled_from([None, 1]),
    kind=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_best_paths_and_probabilities_equal_numpy(
    seed: int, frames: list[int], vocabulary: int, banned: int | None, kind: torch.dtype
) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(0, 3, (len(frames), max(frames), vocabulary))).to(kind)
    copy = logits.clone()
    for row, count, path in zip(logits, frames, best_paths(logits, frames, BLANK, banned), strict=True):
        row_logits = row[:count].float().numpy() if kind != torch.float64 else row[:count].numpy()
        allowed = row_logits.copy()
        if banned is not None:
            allowed[:, banned] = -np.inf
        best = allowed.argmax(axis=1) if count else np.empty(0, int)
        assert path.ids.tolist() == best.tolist()
        expected = np.where(best == BLANK, 1.0, probabilities(row_logits, best)) if count else np.empty(0)
        np.testing.assert_allclose(path.probabilities, expected, rtol=1e-6)
    assert torch.equal(logits, copy)


def test_logits_that_are_nan_are_refused_but_not_in_the_padding() -> None:
    logits = torch.zeros(2, 3, 4)
    logits[0, 2, 1] = torch.nan
    assert [len(path.ids) for path in best_paths(logits, [2, 3], BLANK, None)] == [2, 3]
    with pytest.raises(NotFinite, match="logits are NaN"):
        best_paths(logits, [3, 3], BLANK, None)


def test_sensevoice_decoding_on_the_device_equals_decoding_in_numpy(tmp_path: Path) -> None:
    """The class for GPUs runs on the CPU; texts, tags and confidences are compared, single and batched."""
    model = read_sensevoice(tiny_sensevoice(tmp_path / "model"))
    numpy_pipeline = open_sensevoice(model, torch.device("cpu"))
    device_pipeline = SenseVoicePipeline(model, None, SenseVoiceOnDevice(model, torch.device("cpu")))
    chunks = [noise(seconds, seed=seed)[0] for seed, seconds in enumerate((1.0, 2.5, 0.3))]
    for options in (SenseVoiceOptions(), SenseVoiceOptions(ban_emo_unk=True)):
        expected = [numpy_pipeline.recognise(samples, options) for samples in chunks]
        for results in (
            [device_pipeline.recognise(samples, options) for samples in chunks],
            device_pipeline.recognise_batch(chunks, options),
        ):
            for actual, reference in zip(results, expected, strict=True):
                assert actual.ids == reference.ids and actual.text == reference.text and actual.tags == reference.tags
                assert [token.confidence for token in actual.tokens] == pytest.approx(
                    [t.confidence for t in reference.tokens]
                )
