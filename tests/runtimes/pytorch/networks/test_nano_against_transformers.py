"""Fun-ASR-Nano compared with transformers' model of it, with the weights of the same checkpoint.

transformers' model differs in these points:

- its adaptor norms have eps 1e-5 by default; the original and the workbench use 1e-12. The tests set 1e-12.
- it puts every row of the adaptor in the prompt, where the published configuration (`use_low_frame_rate`) uses the
  first eighth only. With this option on, the tests cut these rows and pass them as embeddings; with it off, both
  programs compute the complete prompt themselves.
- it supports neither CMVN nor a `downsample_rate` above 1; the published checkpoint uses neither.
- its adaptor attends to the padding of a batch unless the kind of attention is named (5.19 makes no mask where the
  adaptor's configuration has none). The tests name it.
- its features need torchaudio, which is not among the locked packages: both models receive the workbench's features.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tests.support.tiny_checkpoints import noise
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from workbench.core.settings import Settings
from workbench.families.speech_llm.funasr_nano import (
    ADAPTOR_EPS,
    SPEECH,
    FunasrNanoModel,
    FunasrNanoOptions,
    audio_tokens,
)
from workbench.pipelines.recognition.funasr_nano import NanoAudioEncoder
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline
from workbench.runtimes.pytorch.checkpoints.weights import read_state_dict
from workbench.runtimes.pytorch.funasr_nano import NanoRunner, open_session
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder

COSINE = 0.999999
SECONDS = (0.3, 1.0, 4.7, 12.0)
TOKENS = 40  # generated at most
AUDIO = 456  # <|endoftext|> stands for the speech in transformers' prompts: no prompt has it

NAMES = (
    (r"^audio_encoder\.encoders0\.0\.", "model.audio_tower.layers.0."),
    (r"^audio_adaptor\.linear([12])\.", r"model.multi_modal_projector.linear_\1."),
    (r"^audio_adaptor\.blocks\.", "model.multi_modal_projector.layers."),
    (r"^llm\.model\.", "model.language_model."),
    (r"^llm\.lm_head\.", "lm_head."),
    (r"\.norm1\.", ".input_layernorm."),
    (r"\.norm2\.", ".post_attention_layernorm."),
    (r"\.self_attn\.linear_(q|k|v)\.", r".self_attn.\1_proj."),
    (r"\.self_attn\.linear_out\.", ".self_attn.o_proj."),
    (r"\.self_attn\.fsmn_block\.", ".self_attn.fsmn.conv."),
    (r"\.feed_forward\.w_([12])\.", r".mlp.fc\1."),
)


def convert(tensors: dict[str, Tensor], blocks: int, tp_blocks: int) -> dict[str, Tensor]:
    """A checkpoint's tensors by transformers' names, with one list of encoder layers and separate projections."""
    names = (
        (r"^audio_encoder\.encoders\.(\d+)\.", lambda match: f"model.audio_tower.layers.{int(match[1]) + 1}."),
        (r"^audio_encoder\.tp_encoders\.(\d+)\.", lambda match: f"model.audio_tower.layers.{int(match[1]) + blocks}."),
        (r"^audio_encoder\.after_norm\.", f"model.audio_tower.layers.{blocks - 1}.final_layernorm."),
        (r"^audio_encoder\.tp_norm\.", f"model.audio_tower.layers.{blocks + tp_blocks - 1}.final_layernorm."),
        *NAMES,
    )
    result = {}
    for name, value in tensors.items():
        for pattern, replacement in names:
            name = re.sub(pattern, replacement, name)
        if ".linear_q_k_v." in name:
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                result[name.replace("linear_q_k_v", f"{letter}_proj")] = part
        else:
            result[name] = value
    return result


def transformers_network(model: FunasrNanoModel) -> Any:
    """Transformers' network with all weights of the checkpoint."""
    import transformers

    text = transformers.AutoConfig.from_pretrained(str(model.language.directory), local_files_only=True)
    encoder, adaptor = model.encoder, model.adaptor
    config = transformers.FunAsrNanoConfig(
        audio_config={
            "num_mel_bins": model.frontend.n_mels,
            "num_stacked_frames": model.frontend.lfr_m,
            "hidden_size": encoder.output_size,
            "num_attention_heads": encoder.attention_heads,
            "intermediate_size": encoder.linear_units,
            "num_hidden_layers": encoder.num_blocks + encoder.tp_blocks,
            "num_timestamp_prediction_layers": encoder.tp_blocks,
            "layer_norm_eps": encoder.norm_eps,
            "fsmn_kernel_size": encoder.kernel_size,
        },
        adaptor_config={
            "hidden_size": adaptor.llm_dim,
            "num_attention_heads": adaptor.attention_heads,
            "intermediate_size": adaptor.llm_dim // 4,
            "num_hidden_layers": adaptor.n_layer,
            "layer_norm_eps": ADAPTOR_EPS,
            "projector_hidden_size": adaptor.ffn_dim,
        },
        text_config=text,
        audio_token_id=AUDIO,
        tie_word_embeddings=text.tie_word_embeddings,
    )
    network = transformers.FunAsrNanoForConditionalGeneration(config).eval().requires_grad_(False)
    network.set_attn_implementation("sdpa")
    tensors = read_state_dict(model.checkpoint.weights)
    network.load_state_dict(convert(tensors, encoder.num_blocks, encoder.tp_blocks), strict=True)
    return network


@dataclass
class Pair:
    """The same checkpoint in both programs."""

    pipeline: SpeechLanguagePipeline
    network: Any  # transformers' FunAsrNanoForConditionalGeneration

    @property
    def audio_encoder(self) -> NanoAudioEncoder:
        assert isinstance(self.pipeline.encoder, NanoAudioEncoder)
        return self.pipeline.encoder

    @property
    def encoder_network(self) -> NanoEncoder:
        assert isinstance(self.audio_encoder.network, NanoRunner)
        return self.audio_encoder.network.network

    def features(self, recordings: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        """Features [B, T, input], padded with zeros, and the number of frames of each row [B]."""
        rows = [torch.from_numpy(self.audio_encoder.features.frontend(samples).features) for samples in recordings]
        return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])

    @torch.inference_mode()
    def reference_embeddings(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Transformers' encoder output [B, T, D] and adaptor output [B, T, H]."""
        mask = (torch.arange(features.shape[1]) < lengths[:, None]).long()
        encoded = self.network.model.audio_tower(features, mask).last_hidden_state
        return encoded, self.network.model.multi_modal_projector(encoded, mask)

    def reference_prompt(self, lengths: Tensor, options: FunasrNanoOptions) -> tuple[Tensor, Tensor]:
        """Ids [B, tokens] with `AUDIO` for every embedding of speech, padded on the left, and their mask."""
        ids = self.audio_encoder.prompt_ids(options).tolist()
        position = ids.index(SPEECH)
        assert AUDIO not in ids
        counts = [audio_tokens(int(length), self.audio_encoder.model.adaptor) for length in lengths]
        rows = [torch.tensor([*ids[:position], *[AUDIO] * count, *ids[position + 1 :]]) for count in counts]
        masks = [torch.ones_like(row) for row in rows]
        return pad_sequence(rows, True, 0, "left"), pad_sequence(masks, True, 0, "left")

    @torch.inference_mode()
    def reference_tokens(self, recordings: Sequence[np.ndarray], options: FunasrNanoOptions) -> list[list[int]]:
        """The ids that transformers generates for each recording, up to its stop token."""
        features, lengths = self.features(recordings)
        ids, mask = self.reference_prompt(lengths, options)
        stops = list(self.audio_encoder.model.stop_ids)
        inputs: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": TOKENS, "do_sample": False}
        if self.audio_encoder.model.adaptor.use_low_frame_rate:
            _, adapted = self.reference_embeddings(features, lengths)
            counts = (ids == AUDIO).sum(dim=1)
            embeddings = self.network.get_input_embeddings()(ids)
            embeddings[ids == AUDIO] = torch.cat([row[:count] for row, count in zip(adapted, counts, strict=True)])
            inputs["inputs_embeds"] = embeddings
        else:
            inputs |= {"input_ids": ids, "input_features": features}
            inputs["input_features_mask"] = (torch.arange(features.shape[1]) < lengths[:, None]).long()
        output = self.network.generate(**inputs, eos_token_id=stops, pad_token_id=stops[0]).tolist()
        if "input_ids" in inputs:
            output = [row[ids.shape[1] :] for row in output]
        return [row[: next((n + 1 for n, token in enumerate(row) if token in stops), len(row))] for row in output]

    def workbench_tokens(self, recordings: Sequence[np.ndarray], options: FunasrNanoOptions) -> list[list[int]]:
        """The ids that the workbench generates for each recording of a batch."""
        writing = self.pipeline.recognise_stream(recordings, options)
        while True:
            try:
                next(writing)
            except StopIteration as end:
                return [list(recognition.ids) for recognition in end.value]


@pytest.fixture(scope="module", params=[True, False], ids=["low frame rate", "every frame"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("nano") / "nano"
    tiny_funasr_nano(directory, audio_adaptor_conf={"use_low_frame_rate": request.param})
    session = open_session(directory, "nano", Settings())
    recogniser = session.recogniser
    assert isinstance(recogniser, SpeechLanguagePipeline) and isinstance(recogniser.encoder, NanoAudioEncoder)
    yield Pair(recogniser, transformers_network(recogniser.encoder.model))
    session.close()


def recording(seconds: float) -> np.ndarray:
    return noise(seconds, seed=round(10 * seconds))[0]


def minimum_cosine(actual: Tensor, expected: Tensor) -> float:
    """The smallest cosine similarity of two rows; both arrays are [frames, width]."""
    assert actual.shape == expected.shape
    return float(torch.nn.functional.cosine_similarity(actual.double(), expected.double(), dim=-1).min())


@pytest.mark.parametrize("seconds", [SECONDS[:1], SECONDS[1:2], SECONDS[2:3], SECONDS[3:], SECONDS], ids=str)
def test_encoder_and_adaptor_outputs_equal_transformers(pair: Pair, seconds: tuple[float, ...]) -> None:
    """Encoder, adaptor, and the embeddings in the prompt, for one recording and for a padded batch."""
    features, lengths = pair.features([recording(duration) for duration in seconds])
    encoded, adapted = pair.reference_embeddings(features, lengths)
    padded = lengths if len(seconds) > 1 else None
    with torch.inference_mode():
        actual_encoded = pair.encoder_network.audio_encoder(features, padded)
        actual_adapted = pair.encoder_network.audio_adaptor(actual_encoded, padded)
        embeddings, counts = pair.encoder_network(features, lengths)
    low = pair.audio_encoder.model.adaptor.use_low_frame_rate
    assert counts.tolist() == [-(-length // 8) if low else length for length in lengths.tolist()]
    for row, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        assert minimum_cosine(actual_encoded[row, :length], encoded[row, :length]) >= COSINE
        assert minimum_cosine(actual_adapted[row, :length], adapted[row, :length]) >= COSINE
        assert minimum_cosine(embeddings[row, :count], adapted[row, :count]) >= COSINE


@pytest.mark.parametrize(
    "options", [{}, {"language": "en", "itn": False, "hotwords": ("seven",)}], ids=["plain", "all"]
)
def test_token_ids_equal_transformers_for_every_audio_length(pair: Pair, options: dict[str, Any]) -> None:
    all_options = FunasrNanoOptions(max_new_tokens=TOKENS, **options)
    outputs = [pair.workbench_tokens([recording(seconds)], all_options)[0] for seconds in SECONDS]
    assert outputs == [pair.reference_tokens([recording(seconds)], all_options)[0] for seconds in SECONDS]
    assert len({tuple(ids) for ids in outputs}) == len(SECONDS), "each recording gives other tokens"
    assert max(map(len, outputs)) > 3


def test_token_ids_equal_transformers_in_a_batch(pair: Pair) -> None:
    options = FunasrNanoOptions(max_new_tokens=TOKENS)
    recordings = [recording(seconds) for seconds in SECONDS]
    assert pair.workbench_tokens(recordings, options) == pair.reference_tokens(recordings, options)
