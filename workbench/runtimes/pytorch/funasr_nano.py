"""Fun-ASR-Nano on PyTorch: from a checkpoint directory to a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workbench.audio.cmvn import read_am_mvn
from workbench.audio.frontend import Frontend
from workbench.decoding.generation import Decoding, decoding_of
from workbench.families.funasr_nano import (
    SPEECH,
    UNUSED_TENSORS,
    FunasrNanoModel,
    FunasrNanoOptions,
    prompt_ids,
    read_funasr_nano,
    tidy,
)
from workbench.opening import Settings
from workbench.runtimes.pytorch.device import prepare
from workbench.runtimes.pytorch.hearing import SpeechLanguageRecogniser
from workbench.runtimes.pytorch.language import LanguageModel, language_dtype, open_language
from workbench.runtimes.pytorch.nano_encoder import NanoEncoder
from workbench.runtimes.pytorch.settle import settle
from workbench.runtimes.pytorch.tap import Recorder, Tap, no_tap
from workbench.runtimes.pytorch.weights import build, load_into, read_state_dict
from workbench.transcription import SpeechSession

LANGUAGE_PREFIX = "llm."


class NanoEar:
    """Fun-ASR-Nano's encoder and adaptor, in float32: their values overflow half precision."""

    options_class = FunasrNanoOptions
    placeholder = SPEECH

    def __init__(self, model: FunasrNanoModel, tensors: dict[str, Tensor], device: torch.device):
        self.model = model
        self.device = device
        self.frontend = Frontend(model.frontend, read_am_mvn(model.cmvn_file) if model.cmvn_file else None)
        self.frontend_without_cmvn = Frontend(model.frontend, None)
        self.network = build(NanoEncoder, model.encoder, model.adaptor)
        weights = model.checkpoint.weights
        load_into(
            self.network, tensors, f"{weights.parent.name}/{weights.name}", unused=UNUSED_TENSORS, mapped_from=weights
        )
        settle(self.network, device, weights)

    def embeddings(
        self, stretches: Sequence[np.ndarray], options: FunasrNanoOptions, recorder: Recorder | None = None
    ) -> tuple[Tensor, np.ndarray]:
        """As `Ear.embeddings`."""
        frontend = self.frontend_without_cmvn if options.cmvn == "off" else self.frontend
        fronts = [frontend(samples, dither=options.dither) for samples in stretches]
        if recorder:
            for stage in ("fbank", "lfr", "features"):
                recorder.put(f"frontend.{stage}", getattr(fronts[0], stage))
        features = [torch.from_numpy(front.features) for front in fronts]
        padded = torch.nn.utils.rnn.pad_sequence(features, batch_first=True).to(self.device)
        lengths = torch.tensor([len(part) for part in features], device=self.device)
        tap: Tap = recorder or no_tap
        speech, counts = self.network(padded, lengths, tap)
        return speech, counts.numpy()

    def prompt_ids(self, options: FunasrNanoOptions) -> np.ndarray:
        """As `Ear.prompt_ids`."""
        return prompt_ids(self.model, options)

    def decoding(self, options: FunasrNanoOptions, counts: np.ndarray) -> Decoding:
        """As `Ear.decoding`."""
        return decoding_of(options, self.model.stop_ids, pad_id=self.model.stop_ids[0])

    def text(self, written: str) -> str:
        """As `Ear.text`."""
        return tidy(written)


def split_language(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A checkpoint's tensors as (those of the hearing half, those of the language half by transformers' names)."""
    language = {
        name.removeprefix(LANGUAGE_PREFIX): value for name, value in tensors.items() if name.startswith(LANGUAGE_PREFIX)
    }
    return {name: value for name, value in tensors.items() if not name.startswith(LANGUAGE_PREFIX)}, language


def open_nano_language(
    model: FunasrNanoModel, language: dict[str, Tensor], device: torch.device, dtype: str
) -> LanguageModel:
    """The language half, with the weights in the checkpoint."""
    weights = model.checkpoint.weights
    chosen = language_dtype(model.language.directory, dtype)
    return open_language(model.language, device, chosen, language, f"{weights.parent.name}/{weights.name}")


def open_session(directory: Path, name: str, settings: Settings) -> SpeechSession:
    """A session of the checkpoint in `directory`, called `name` in its results."""
    device = prepare(settings)
    model = read_funasr_nano(directory)
    hearing, language = split_language(read_state_dict(model.checkpoint.weights))
    ear = NanoEar(model, hearing, device)
    half = open_nano_language(model, language, device, settings.dtype)
    return SpeechSession(name, "pytorch", SpeechLanguageRecogniser(ear, half, model.tokenizer))
