"""Fun-ASR-Nano on PyTorch gives what the original package gives, from the same checkpoint directory.

A model of the published configuration with fewer layers and less width, built and saved by the package, with random
weights; real speech, no dither. With `-rP --log-level=INFO` pytest prints the figures seen.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.reference import original
from tests.reference.checkpoints import MELS
from tests.reference.drawn_weights import fill, synthetic_voice
from tests.reference.speech import RECORDINGS, cosines, recording, speech
from tests.support.tiny_language import put_tokenizer
from workbench.audio.frontend import Frontend
from workbench.core.settings import Settings
from workbench.families.speech_llm.funasr_nano import LANGUAGES, SPEECH, FunasrNanoOptions, prompt_ids, read_funasr_nano
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.runtimes.pytorch.checkpoints.weights import build
from workbench.runtimes.pytorch.funasr_nano import open_session
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder
from workbench.trace.trace import StageFilter

pytestmark = [pytest.mark.reference, pytest.mark.slow]

COSINE = 0.999999
HIDDEN, VOCABULARY, LANGUAGE_DIRECTORY = 128, 512, "Qwen3-small"
TOKENS = 40  # generated at most
CONFIG: dict[str, Any] = {
    "model": "FunASRNano",
    "model_conf": {"lsm_weight": 0.1, "length_normalized_loss": True},
    "audio_encoder": "SenseVoiceEncoderSmall",
    "audio_encoder_conf": {
        "output_size": 64,
        "attention_heads": 4,
        "linear_units": 128,
        "num_blocks": 4,
        "tp_blocks": 2,
        "dropout_rate": 0.1,
        "positional_dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "input_layer": "pe",
        "pos_enc_class": "SinusoidalPositionEncoder",
        "normalize_before": True,
        "kernel_size": 11,
        "sanm_shfit": 0,
        "selfattention_layer_type": "sanm",
        "freeze": True,
        "freeze_layer_num": -1,
        "feat_permute": True,
    },
    "llm": "Qwen3-0.6b",
    "llm_conf": {
        "hub": "hf",
        "freeze": True,
        "llm_dtype": "fp32",
        "init_param_path": LANGUAGE_DIRECTORY,
        "use_lora": False,
    },
    "audio_adaptor": "Transformer",
    "audio_adaptor_conf": {
        "downsample_rate": 1,
        "use_low_frame_rate": True,
        "ffn_dim": 256,
        "llm_dim": HIDDEN,
        "encoder_dim": 64,
        "n_layer": 2,
        "freeze": True,
    },
    "frontend": "WavFrontend",
    "frontend_conf": {
        "fs": 16000,
        "window": "hamming",
        "n_mels": MELS,
        "frame_length": 25,
        "frame_shift": 10,
        "lfr_m": 7,
        "lfr_n": 6,
        "cmvn_file": None,
    },
    "dataset_conf": {},
}
PROMPTS = [
    {},
    {"language": "en"},
    {"itn": False},
    {"language": "yue", "itn": False, "hotwords": ("开放时间", "Qwen")},
    {"hotwords": ("seven",)},
]


@dataclass
class Pair:
    """The same checkpoint in both programs."""

    directory: Path
    network: Any  # FunASRNano of the package
    frontend: Any  # its WavFrontend
    tokenizer: Any
    pipeline: Any  # a SpeechLanguagePipeline

    def generate(self, samples: np.ndarray, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the original's inputs of its language model, and its outputs with the generated ids and text."""
        prompt = self.network.get_prompt(
            list(options.get("hotwords", ())), LANGUAGES.get(options.get("language", "auto")), options.get("itn", True)
        )
        data = [self.network.generate_chatml(prompt, torch.from_numpy(samples))]
        common = {"tokenizer": self.tokenizer, "frontend": self.frontend, "device": "cpu", "dataset_conf": {}}
        with torch.no_grad():
            embeddings, _, batch, ids, meta = self.network.inference_prepare(data, key=["x"], **common)
            generated = self.network.llm.generate(
                inputs_embeds=embeddings,
                attention_mask=torch.ones(embeddings.shape[:2], dtype=torch.long),
                max_new_tokens=TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
            text = self.network.inference(
                [torch.from_numpy(samples)],
                key=["x"],
                **common,
                max_length=TOKENS,
                hotwords=list(options.get("hotwords", ())),
                language=LANGUAGES.get(options.get("language", "auto")),
                itn=options.get("itn", True),
            )[0][0]["text"]
        batch["ids"], batch["embeddings"] = ids[0], embeddings[0]
        return batch, {**meta, "generated": generated[0], "text": text}

    def compare(self, samples: np.ndarray, **options: Any) -> list[int]:
        """Asserts that both give the same outputs; returns the ids that both generated."""
        chosen = FunasrNanoOptions(max_new_tokens=TOKENS, **options)
        batch, original_outputs = self.generate(samples, **options)
        trace = self.pipeline.trace(samples, chosen, StageFilter("*"))
        worst = {}
        count = int(batch["fake_token_len"][0, 0])
        for stage, expected in (
            ("encoder.output", original_outputs["encoder_out"][0]),
            ("adaptor.output", original_outputs["audio_adaptor_out"][0, :count]),
            ("llm.embeddings", batch["embeddings"]),
        ):
            cosine, row = cosines(trace[stage], expected.numpy())
            worst[stage] = min(cosine, row)
        LOG.info("%d frames, %d embeddings: least cosines %s", len(trace["frontend.features"]), count, worst)
        assert all(least >= COSINE for least in worst.values()), worst
        # The original has one zero for each speech embedding.
        ids = prompt_ids(self.pipeline.encoder.model, chosen).tolist()
        place = ids.index(SPEECH)
        assert [*ids[:place], *[0] * count, *ids[place + 1 :]] == batch["ids"].tolist()
        assert trace["tokens"].tolist() == original_outputs["generated"].tolist()
        assert str(trace["text"]) == original_outputs["text"].strip()
        return list(trace["tokens"])


LOG = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    original.require()
    if importlib.util.find_spec("omegaconf") is None:
        pytest.skip("the original package needs omegaconf, which is not installed here; to install it: make reference")
    with original.torch_threads(1):  # in a network this small a second thread only waits while cores are busy
        directory = tmp_path_factory.mktemp("nano") / "model"
        network = build_original(directory)
        frontend = original.module("funasr.frontends.wav_frontend").WavFrontend(**CONFIG["frontend_conf"], dither=0.0)
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(directory / LANGUAGE_DIRECTORY))
        session = open_session(directory, "model", Settings())
        yield Pair(directory, network, frontend, tokenizer, session.recogniser)
        session.close()


def build_original(directory: Path) -> Any:
    """The package's own network with drawn weights, saved as a checkpoint in `directory`."""
    from transformers import Qwen3Config

    language = directory / LANGUAGE_DIRECTORY
    put_tokenizer(language)
    Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=458,
        pad_token_id=456,
        architectures=["Qwen3ForCausalLM"],
    ).save_pretrained(language)
    for name in ("funasr.models.sense_voice.model", "funasr.models.llm_asr.adaptor"):
        original.module(name)  # registers the classes that the configuration names
    nano = original.module("funasr.models.fun_asr_nano.model")
    config = {name: dict(value) if isinstance(value, dict) else value for name, value in CONFIG.items()}
    config["llm_conf"]["init_param_path"] = str(language)
    network = nano.FunASRNano(**config, input_size=7 * MELS).eval()
    network.requires_grad_(False)
    fill(network, seed=3)
    draw_language(network.llm)
    (directory / "config.yaml").write_text(yaml.safe_dump(CONFIG, allow_unicode=True), encoding="utf-8")
    torch.save({"state_dict": network.state_dict()}, directory / "model.pt")
    spread_adaptor(directory, network)
    torch.save({"state_dict": network.state_dict()}, directory / "model.pt")
    return network


def draw_language(llm: torch.nn.Module) -> None:
    """Draws weights with which the likeliest token depends on the step and on the speech."""
    generator = torch.Generator().manual_seed(4)
    for name, parameter in llm.named_parameters():
        if parameter.dim() > 1:
            parameter.normal_(0.0, 2.0 / parameter.shape[-1] ** 0.5, generator=generator)
        elif "norm" in name:
            parameter.normal_(1.0, 0.1, generator=generator)


def spread_adaptor(directory: Path, network: Any) -> None:
    """Subtracts the embeddings' mean in the adaptor's last layer, as a trained adaptor distinguishes frames."""
    model = read_funasr_nano(directory)
    features = torch.from_numpy(Frontend(model.frontend, None)(synthetic_voice(6.0, 1)).features)[None]
    lengths = torch.tensor([features.shape[1]])
    with torch.no_grad():
        encoded, _ = network.audio_encoder(features, lengths)
        adapted, _ = network.audio_adaptor(encoded, lengths)
        network.audio_adaptor.blocks[-1].feed_forward.w_2.bias -= adapted[0].mean(dim=0)


def test_network_has_the_tensor_names_of_the_original_checkpoint(pair: Pair) -> None:
    model, names = pair.pipeline.encoder.model, set(pair.network.state_dict())
    assert {name for name in names if not name.startswith("llm.")} == set(
        build(NanoEncoder, model.encoder, model.adaptor).state_dict()
    )
    language = {f"llm.{name}" for name in pair.pipeline.language.network.state_dict()}
    assert {name for name in names if name.startswith("llm.")} == language


@pytest.mark.parametrize("seconds", [1, 3.3, 6, 20])
def test_same_output_for_every_length(pair: Pair, seconds: float) -> None:
    ids = pair.compare(speech(seconds))
    assert len(set(ids)) > 4  # the random model's output varies


@pytest.mark.parametrize("options", PROMPTS, ids=lambda options: "-".join(options) or "plain")
def test_same_output_for_every_prompt(pair: Pair, options: dict[str, Any]) -> None:
    pair.compare(speech(4), **options)


@pytest.mark.parametrize("language", LANGUAGES)
def test_prompt_ids_equal_the_original_for_every_language(pair: Pair, language: str) -> None:
    prompt = pair.network.get_prompt([], LANGUAGES[language], True)
    ids = prompt_ids(pair.pipeline.encoder.model, FunasrNanoOptions(language=language)).tolist()
    before = f"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{prompt}"
    assert ids[: ids.index(SPEECH)] == pair.tokenizer.encode(before)


@pytest.mark.parametrize("name", RECORDINGS)
def test_same_output_for_every_recording(pair: Pair, name: str) -> None:
    pair.compare(recording(name)[: 20 * 16000])


def test_output_depends_on_the_recording(pair: Pair) -> None:
    assert len({tuple(pair.compare(speech(seconds))) for seconds in (1, 2, 4)}) == 3


def test_batch_output_equals_the_output_of_each_recording_alone(pair: Pair) -> None:
    """The package also pads embeddings on the left; each recording has the same output in a batch."""
    recordings = [speech(1), speech(5), speech(2.5)]
    expected = [pair.compare(samples) for samples in recordings]
    assert [
        list(recognition.ids)
        for recognition in collect(pair.pipeline.recognise_stream(recordings, FunasrNanoOptions(max_new_tokens=TOKENS)))
    ] == expected


def collect(stream: Generator[list[str], None, list[Recognition]]) -> list[Recognition]:
    """Returns what the recogniser returns after its last token."""
    while True:
        try:
            next(stream)
        except StopIteration as done:
            recognitions: list[Recognition] = done.value
            return recognitions
