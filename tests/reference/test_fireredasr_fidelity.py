"""FireRedASR-LLM gives what the original code gives, at the same weights: features, encoder, adapter, prompt, ids.

To get the original, and what it imports:

    git clone https://github.com/FireRedTeam/FireRedASR
    pip install --target original-packages --no-deps peft accelerate kaldiio
    PYTHONPATH=FireRedASR:original-packages pytest tests/reference/test_fireredasr_fidelity.py
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.reference.speech import RECORDINGS, cosines, recording, speech
from tests.support.tiny_fireredasr import (
    ARGUMENTS,
    ENCODER_ARGUMENTS,
    HIDDEN,
    hearing_tensors,
    lora_tensors,
    write_language,
    write_package,
    write_statistics,
)
from workbench.core.settings import Settings
from workbench.families.speech_llm.conformer import ConformerConfig
from workbench.families.speech_llm.fireredasr import (
    CMVN,
    ENCODER_WEIGHTS,
    LANGUAGE_DIRECTORY,
    WEIGHTS,
    FireRedAsrOptions,
)
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline
from workbench.runtimes.pytorch.fireredasr import open_session
from workbench.runtimes.pytorch.language_models.language import LanguageModel
from workbench.trace.trace import StageFilter

pytestmark = [pytest.mark.reference, pytest.mark.slow]

CONFIG = ConformerConfig(idim=80, n_layers=3, n_head=4, d_model=64, kernel_size=33, pe_maxlen=5000)
RANK = 64  # the original builds its LoRA layers of this rank for any file
SECONDS = (1.0, 2.51, 6.6, 13.37)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that both sides read."""
    for package in ("fireredasr", "peft", "accelerate", "kaldiio"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(
                f"compares with the original FireRedASR code; {package} is not on the path here (see this file's head)"
            )
    directory = tmp_path_factory.mktemp("fireredasr")
    write_language(directory / LANGUAGE_DIRECTORY)
    write_statistics(directory / CMVN)
    encoder = {
        **ENCODER_ARGUMENTS,
        "n_layers_enc": CONFIG.n_layers,
        "n_head": CONFIG.n_head,
        "d_model": CONFIG.d_model,
        "kernel_size": CONFIG.kernel_size,
        "n_layers_dec": 1,
    }
    hearing = hearing_tensors(3, CONFIG)
    positions = hearing.pop("encoder.positional_encoding.pe")  # shortened there; the original makes its own
    assert positions.shape[2] == CONFIG.d_model
    write_package(directory / ENCODER_WEIGHTS, encoder, None)
    write_package(directory / WEIGHTS, {**ARGUMENTS, "use_fp16": 0}, {**hearing, **lora_tensors(3, RANK)})
    return directory


@pytest.fixture(scope="module")
def original(directory: Path) -> Any:
    """The original model with its own loader, and its tokenizer."""
    module = importlib.import_module("fireredasr.models.fireredasr")
    with torch.serialization.safe_globals([Namespace]):
        model, tokenizer = module.load_firered_llm_model_and_tokenizer(
            str(directory / WEIGHTS), str(directory / ENCODER_WEIGHTS), str(directory / LANGUAGE_DIRECTORY)
        )
    return Namespace(model=model.eval(), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def pipeline(directory: Path) -> SpeechLanguagePipeline:
    recogniser = open_session(directory, "tiny", Settings()).recogniser
    assert isinstance(recogniser, SpeechLanguagePipeline)
    return recogniser


def code_rule() -> str:
    """Returns the installed original's length rule: the latest code computes lengths, the first slices the mask."""
    subsampling = importlib.import_module("fireredasr.models.module.conformer_encoder").Conv2dSubsampling
    return "head" if "input_lengths" in inspect.signature(subsampling.forward).parameters else "release"


@pytest.fixture(params=["release", "head"])
def rule(request: pytest.FixtureRequest, original: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each length rule, with the original's code changed to follow it."""
    if request.param == "head" and code_rule() != "head":
        pytest.skip("the FireRedASR code on the path is the first release, which has the rule `release` alone")
    if request.param == "release" and code_rule() == "head":
        preprocessor = original.model.encoder.input_preprocessor
        latest = preprocessor.forward

        def first_release(x: Tensor, mask: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            sliced = mask[:, :, :-2:2][:, :, :-2:2]
            return latest(x, mask, lengths)[0], sliced[:, 0].sum(dim=1), sliced

        monkeypatch.setattr(preprocessor, "forward", first_release)
    return str(request.param)


def features_of(samples: np.ndarray, directory: Path) -> Tensor:
    """The original's features [1, frames, mels] of samples at full scale 1."""
    module = importlib.import_module("fireredasr.data.asr_feat")
    extractor = module.ASRFeatExtractor(str(directory / CMVN))
    fbank = extractor.fbank((16000, samples * 32768.0))
    return torch.from_numpy(extractor.cmvn(fbank)).float()[None]


def prompt_of(tokenizer: Any, batch: int = 1) -> tuple[Tensor, Tensor]:
    """Prompt ids and mask from the original's own template; newer tokenizers return a mapping by default."""
    wrapper = importlib.import_module("fireredasr.tokenizer.llm_tokenizer").LlmTokenizerWrapper
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "apply_chat_template", partial(tokenizer.apply_chat_template, return_dict=False))
        ids, mask, _, _ = wrapper.preprocess_texts([""] * batch, tokenizer, max_len=128, decode=True)
    return ids, mask


def samples_of(name: str) -> np.ndarray:
    """Returns real speech: seconds of the project's samples, or a recording beside the checkout."""
    return speech(float(name)) if name not in RECORDINGS else recording(name)[: 16000 * 20]


SOUNDS = [*map(str, SECONDS), *RECORDINGS]


@pytest.mark.parametrize("sound", SOUNDS)
def test_every_stage_equals_that_of_the_original_code(
    sound: str, rule: str, original: Any, pipeline: SpeechLanguagePipeline, directory: Path
) -> None:
    samples = samples_of(sound)
    features = features_of(samples, directory)
    stages = pipeline.trace(
        samples,
        FireRedAsrOptions(length_rule=rule),
        StageFilter("frontend.*,encoder.*,adaptor.*,prompt.*,llm.*,logits"),
    )
    model = original.model
    ids, mask = prompt_of(original.tokenizer)
    np.testing.assert_array_equal(stages["prompt.tokens"], ids[0].numpy())
    with torch.inference_mode():
        encoded, lengths, _ = model.encoder(features, torch.tensor([features.shape[1]]))
        adapted, lengths = model.encoder_projector(encoded, lengths)
        text = model.llm.get_input_embeddings()(ids)
        merged, merged_mask, _ = model._merge_input_ids_with_speech_features(
            adapted, text, ids, mask, speech_lens=lengths
        )
        logits = model.llm(inputs_embeds=merged).logits
    assert merged_mask.all()
    np.testing.assert_allclose(stages["frontend.features"], features[0].numpy(), atol=2e-4)
    for stage, expected in {
        "frontend.features": features,
        "encoder.output": encoded,
        "adaptor.output": adapted,
        "llm.embeddings": merged,
        "logits": logits,
    }.items():
        cosine, least = cosines(stages[stage], expected[0].numpy())
        assert cosine >= 0.999999 and least >= 0.99999, stage


@pytest.mark.parametrize("sound", SOUNDS)
@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"beam_size": 3},
        {"beam_size": 3, "repetition_penalty": 3.0, "length_penalty": 1.0},
        {"max_new_tokens": 5},
    ],
    ids=["greedy", "beams", "recommended", "limited"],
)
def test_generated_ids_and_text_equal_those_of_the_original_code(
    sound: str, choice: dict[str, Any], original: Any, pipeline: SpeechLanguagePipeline, directory: Path
) -> None:
    samples = samples_of(sound)
    features = features_of(samples, directory)
    ids, mask = prompt_of(original.tokenizer)
    with torch.inference_mode():
        [expected] = original.model.transcribe(
            features,
            torch.tensor([features.shape[1]]),
            ids,
            mask,
            beam_size=choice.get("beam_size", 1),
            decode_max_len=choice.get("max_new_tokens", 0),
            repetition_penalty=choice.get("repetition_penalty", 1.0),
            llm_length_penalty=choice.get("length_penalty", 0.0),
        )
    options = FireRedAsrOptions(length_rule=code_rule(), **choice)
    recognition = pipeline.recognise(samples, options)
    assert list(recognition.ids) == expected.tolist()
    decoded = original.tokenizer.decode(expected, skip_special_tokens=True)
    assert recognition.text == decoded.strip().lower()


def test_cmvn_statistics_equal_those_read_by_the_original_code(directory: Path) -> None:
    from workbench.audio.cmvn import read_cmvn_ark

    original_cmvn = importlib.import_module("fireredasr.data.asr_feat").CMVN(str(directory / CMVN))
    cmvn = read_cmvn_ark(directory / CMVN)
    np.testing.assert_allclose(-cmvn.shift, original_cmvn.means, rtol=1e-6)
    np.testing.assert_allclose(cmvn.scale, original_cmvn.inverse_std_variences, rtol=1e-6)


def test_merged_lora_weights_equal_those_of_peft(original: Any, pipeline: SpeechLanguagePipeline) -> None:
    assert isinstance(pipeline.language, LanguageModel)
    merged = dict(pipeline.language.network.named_parameters())
    expected_weights = {
        name: module.base_layer.weight + module.get_delta_weight("default")
        for name, module in original.model.llm.base_model.model.named_modules()
        if hasattr(module, "get_delta_weight")
    }
    assert len(expected_weights) == 7 * original.model.llm.config.num_hidden_layers and HIDDEN == 32
    for name, expected in expected_weights.items():
        torch.testing.assert_close(merged[f"{name}.weight"], expected, rtol=1e-5, atol=1e-6)
