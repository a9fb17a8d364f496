"""Fun-ASR-Nano on PyTorch: opens a session from a checkpoint directory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workbench.audio.cmvn import read_am_mvn
from workbench.core.phrases import name_in_folder
from workbench.core.settings import Settings
from workbench.families.speech_llm.funasr_nano import UNUSED_TENSORS, FunasrNanoModel, read_funasr_nano
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.recognition.funasr_nano import NanoAudioEncoder
from workbench.pipelines.recognition.nano_search import NanoPipeline
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights
from workbench.runtimes.pytorch.checkpoints.lora import merged_tensors
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into, read_state_dict
from workbench.runtimes.pytorch.inner_stages.gradients import input_gradient
from workbench.runtimes.pytorch.inner_stages.inside import looking_inside
from workbench.runtimes.pytorch.inner_stages.layer_maps import layers_of
from workbench.runtimes.pytorch.language_models.language import LanguageModel, language_dtype, open_language
from workbench.runtimes.pytorch.nano_ctc import open_ctc_branch
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder
from workbench.runtimes.pytorch.numerics.arithmetic import array_of, attention_in_steps
from workbench.runtimes.pytorch.numerics.device import prepare
from workbench.runtimes.pytorch.numerics.products import FLOAT32, Arithmetic, arithmetic_of
from workbench.runtimes.pytorch.tap import tap_into
from workbench.trace.recorder import Recorder

LANGUAGE_PREFIX = "llm."


class NanoRunner:
    """The loaded encoder and adaptor, numpy arrays in and embeddings out; implements
    `workbench.pipelines.recognition.funasr_nano.NanoNetwork`.
    """

    def __init__(
        self,
        model: FunasrNanoModel,
        tensors: dict[str, Tensor],
        device: torch.device,
        arithmetic: Arithmetic = FLOAT32,
    ):
        self.device = device
        self.kind = arithmetic.values
        self.network = build(NanoEncoder, model.encoder, model.adaptor)
        weights = model.checkpoint.weights
        where = name_in_folder(weights)
        load_into(self.network, tensors, where, unused_globs=UNUSED_TENSORS, mapped_from=weights, dtype=self.kind)
        finalise_weights(self.network, device, weights, arithmetic=arithmetic)
        self.branch = open_ctc_branch(model.ctc, tensors, weights, device, arithmetic)

    @torch.inference_mode()
    def embed_audio(self, features: Sequence[np.ndarray], recorder: Recorder | None) -> tuple[Tensor, np.ndarray]:
        """See `NanoNetwork.embed_audio`."""
        rows = [torch.from_numpy(row).to(self.kind) for row in features]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(self.device)
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        with attention_in_steps(self.kind), looking_inside(self.network, recorder):
            speech, counts = self.network(padded, lengths, tap_into(recorder))
        return speech.to(self.kind), counts.numpy()

    def input_gradient(self, features: np.ndarray, gradient: Tensor) -> np.ndarray:
        """See `workbench.pipelines.gradients.DifferentiatesFeatures`."""
        batch = torch.from_numpy(features)[None].to(self.device, self.kind)
        lengths = torch.tensor([len(features)], device=self.device)

        def embed(inputs: Tensor) -> Tensor:
            speech: Tensor = self.network(inputs, lengths)[0]
            return speech[0]

        layers = layers_of(self.network)
        return array_of(input_gradient(batch, embed, gradient, layers, partial(attention_in_steps, self.kind))[0])

    @torch.inference_mode()
    def ctc_logits(self, features: np.ndarray, recorder: Recorder | None) -> np.ndarray:
        """See `workbench.pipelines.recognition.nano_search.CtcNetwork.ctc_logits`."""
        assert not isinstance(self.branch, str)
        batch = torch.from_numpy(features)[None].to(self.device, self.kind)
        watches = looking_inside(self.network, recorder), looking_inside(self.branch, recorder)
        with attention_in_steps(self.kind), watches[0], watches[1]:
            encoded = self.network.audio_encoder(batch, None, tap_into(recorder))
            return array_of(self.branch(encoded, tap_into(recorder))[0])


def split_language(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Splits a checkpoint's tensors into (encoder and adaptor, language model by transformers' names)."""
    language = {
        name.removeprefix(LANGUAGE_PREFIX): value for name, value in tensors.items() if name.startswith(LANGUAGE_PREFIX)
    }
    return {name: value for name, value in tensors.items() if not name.startswith(LANGUAGE_PREFIX)}, language


def read_parts(model: FunasrNanoModel) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns a checkpoint's tensors as `split_language` does, with LoRA added to the language model's weights if
    `llm_conf` states it; raises `BadInput` for a damaged file, and for pairs that do not fit.
    """
    weights = model.checkpoint.weights
    audio, language = split_language(read_state_dict(weights))
    if model.lora is not None:
        language = merged_tensors(language, *model.lora, name_in_folder(weights))
    return audio, language


def open_nano_language(
    model: FunasrNanoModel, language: dict[str, Tensor], device: torch.device, dtype: str, stepwise: bool = False
) -> LanguageModel:
    """Opens the language model with the weights in the checkpoint."""
    weights = model.checkpoint.weights
    language_type = language_dtype(model.language.directory, dtype)
    where = name_in_folder(weights)
    return open_language(model.language, device, language_type, language, where, stepwise)


def open_session(directory: Path, name: str, settings: Settings) -> InstructedSession:
    """Opens a session for the checkpoint in `directory`; results call the model `name`."""
    device = prepare(settings)
    model = read_funasr_nano(directory)
    audio, language = read_parts(model)
    cmvn = read_am_mvn(model.cmvn_file) if model.cmvn_file else None
    kind = language_dtype(model.language.directory, settings.dtype)
    runner = NanoRunner(model, audio, device, arithmetic_of(settings, device, kind))
    language_model = open_nano_language(model, language, device, settings.dtype, settings.stepwise)
    branch = runner.branch if isinstance(runner.branch, str) else model.ctc
    pipeline = NanoPipeline(NanoAudioEncoder(model, cmvn, runner), language_model, branch, runner)
    return InstructedSession(name, "pytorch", pipeline, device=str(device))
