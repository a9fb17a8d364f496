"""The demo speech language models on gguf against PyTorch, over all shipped recordings."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.gguf_encoders import cosine
from workbench.audio.read import read
from workbench.conversion import fireredasr as fireredasr_conversion
from workbench.conversion import funasr_nano as funasr_nano_conversion
from workbench.conversion import writer
from workbench.core.settings import Settings
from workbench.runtimes.gguf import fireredasr, funasr_nano
from workbench.runtimes.pytorch import fireredasr as pytorch_fireredasr
from workbench.runtimes.pytorch import funasr_nano as pytorch_funasr_nano
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

ASSETS = Path(__file__).parents[3] / "assets"
SAMPLES = sorted((ASSETS / "samples").glob("*.wav"))
SETTINGS = Settings(threads=1)
MIN_COSINE = {"f32": 0.999999, "f16": 0.99999, "q8_0": 0.999}  # to PyTorch's float32
MAX_SAMPLES = 30 * 16_000  # samples; in longer recordings the demo models guess tokens, so rounding changes them


class Family(NamedTuple):
    """A demo checkpoint and the modules that convert and run its family."""

    checkpoint: Path
    conversion: ModuleType
    pytorch: ModuleType
    gguf: ModuleType


FAMILIES = {
    "funasr_nano": Family(ASSETS / "demo-funasr-nano", funasr_nano_conversion, pytorch_funasr_nano, funasr_nano),
    "fireredasr": Family(ASSETS / "demo-fireredasr", fireredasr_conversion, pytorch_fireredasr, fireredasr),
}


class Expected(NamedTuple):
    """The stages and the transcript of a recording on PyTorch."""

    stages: dict[str, np.ndarray]
    text: str


def stages_of(session: Any, samples: np.ndarray) -> dict[str, np.ndarray]:
    """The stages of the audio encoder and the adaptor."""
    recorder, encoder = Recorder(StageFilter("encoder*,adaptor*")), session.recogniser.encoder
    encoder.embeddings([samples], encoder.options_class(dither=0.0), recorder)
    return recorder.stages


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> tuple[Family, dict[Path, Expected]]:
    modules = FAMILIES[request.param]
    session = modules.pytorch.open_session(modules.checkpoint, "demo", SETTINGS)
    expected = {
        path: Expected(stages_of(session, read(path).samples), session.transcribe(path, dither=0.0).text)
        for path in SAMPLES
    }
    session.close()
    return modules, expected


@pytest.mark.parametrize("quantization", sorted(MIN_COSINE))
def test_demo_model_transcribes_like_pytorch_in_every_weight_type(
    family: tuple[Family, dict[Path, Expected]], tmp_path: Path, quantization: str
) -> None:
    modules, expected = family
    [path] = writer.write(modules.conversion.plans(modules.checkpoint, "workbench"), quantization, tmp_path / "it.gguf")
    session = modules.gguf.open_session(path, "demo", SETTINGS)
    for sample, reference in expected.items():
        stages = stages_of(session, read(sample).samples)
        assert list(stages) == list(reference.stages)
        stage_names = stages if quantization == "f32" else ("encoder.output", "adaptor.output")
        similarities = {stage: cosine(stages[stage], reference.stages[stage]) for stage in stage_names}
        assert not {
            stage: similarity for stage, similarity in similarities.items() if similarity < MIN_COSINE[quantization]
        }
        if quantization == "f32" or len(read(sample).samples) < MAX_SAMPLES:
            assert session.transcribe(sample, dither=0.0).text == reference.text
    session.close()
