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
LEAST = {"f32": 0.999999, "f16": 0.99999, "q8_0": 0.999}  # cosine to PyTorch's float32
LONGEST = 30 * 16_000  # samples: of more, heard in one piece, the demos guess, and rounding decides between guesses


class Family(NamedTuple):
    """Where a family's parts are."""

    checkpoint: Path
    conversion: ModuleType
    pytorch: ModuleType
    gguf: ModuleType


FAMILIES = {
    "funasr_nano": Family(ASSETS / "demo-funasr-nano", funasr_nano_conversion, pytorch_funasr_nano, funasr_nano),
    "fireredasr": Family(ASSETS / "demo-fireredasr", fireredasr_conversion, pytorch_fireredasr, fireredasr),
}


class Expected(NamedTuple):
    """What PyTorch makes of a recording."""

    stages: dict[str, np.ndarray]
    text: str


def stages_of(session: Any, samples: np.ndarray) -> dict[str, np.ndarray]:
    """Those of the hearing half, from the encoder's first on."""
    recorder, ear = Recorder(StageFilter("encoder*,adaptor*")), session.recogniser.encoder
    ear.embeddings([samples], ear.options_class(dither=0.0), recorder)
    return recorder.stages


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> tuple[Family, dict[Path, Expected]]:
    found = FAMILIES[request.param]
    session = found.pytorch.open_session(found.checkpoint, "demo", SETTINGS)
    expected = {
        path: Expected(stages_of(session, read(path).samples), session.transcribe(path, dither=0.0).text)
        for path in SAMPLES
    }
    session.close()
    return found, expected


@pytest.mark.parametrize("quantization", sorted(LEAST))
def test_demo_model_transcribes_like_pytorch_in_every_weight_type(
    family: tuple[Family, dict[Path, Expected]], tmp_path: Path, quantization: str
) -> None:
    found, expected = family
    [path] = writer.write(found.conversion.plans(found.checkpoint, "workbench"), quantization, tmp_path / "it.gguf")
    session = found.gguf.open_session(path, "demo", SETTINGS)
    for sample, theirs in expected.items():
        ours = stages_of(session, read(sample).samples)
        assert list(ours) == list(theirs.stages)
        checked = ours if quantization == "f32" else ("encoder.output", "adaptor.output")
        poor = {stage: cosine(ours[stage], theirs.stages[stage]) for stage in checked}
        assert not {stage: near for stage, near in poor.items() if near < LEAST[quantization]}
        if quantization == "f32" or len(read(sample).samples) < LONGEST:
            assert session.transcribe(sample, dither=0.0).text == theirs.text
    session.close()
