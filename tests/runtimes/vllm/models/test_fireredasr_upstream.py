"""The converted directory under vLLM's own FireRedASR class gives the same tokens as the workbench."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.support.in_process_vllm import in_process_engine, model_in, written
from workbench.audio.read import read
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of
from workbench.conversion.vllm_checkpoint.directory import write_directory
from workbench.core.settings import SessionSpec
from workbench.families.language.directory import AUDIO
from workbench.families.speech_llm.fireredasr import PROMPT, SPEECH, FireRedAsrOptions, read_vllm_fireredasr
from workbench.isolation.loader import open_here
from workbench.registry.sources import assets

pytestmark = [pytest.mark.slow, pytest.mark.reference]

DEMO = assets() / "demo-fireredasr"
UPSTREAM = "FireRedASR2ForConditionalGeneration"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("served") / "demo"
    write_directory(plan_of(DEMO, "fireredasr"), out)
    return out


@pytest.fixture(scope="module")
def upstream(directory: Path) -> Iterator[Any]:
    from transformers import processing_utils

    with pytest.MonkeyPatch.context() as patch:
        try:
            import torchvision  # noqa: F401
        except ImportError:  # without it, transformers' processors read mappings that its placeholders lack
            for name in ("VIDEO_PROCESSOR_MAPPING", "IMAGE_PROCESSOR_MAPPING"):
                patch.setattr(processing_utils.transformers_module, name, SimpleNamespace(_extra_content={}))
        with in_process_engine(directory, hf_overrides={"architectures": [UPSTREAM]}, max_model_len=512) as llm:
            yield llm


def test_vllm_fireredasr_class_gives_the_same_tokens_as_pytorch(upstream: Any, directory: Path) -> None:
    assert type(model_in(upstream)).__name__ == UPSTREAM
    session: Any = open_here(SessionSpec("demo", "fireredasr", "pytorch", DEMO))
    names = ("three_seven_one", "seven_digits", "five_zero_eight_two_noisy", "librivox_austen_0880")
    recordings = [read(assets() / "samples" / f"{name}.wav").samples for name in names]
    options = FireRedAsrOptions(max_new_tokens=64)
    expected = [list(session.recogniser.recognise(samples, options).ids) for samples in recordings]
    text = PROMPT.replace(SPEECH, AUDIO)
    prompts = [{"prompt": text, "multi_modal_data": {"audio": (samples, 16000)}} for samples in recordings]
    assert written(upstream, prompts, [read_vllm_fireredasr(directory).stop_id]) == expected
