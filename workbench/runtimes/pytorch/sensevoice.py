"""SenseVoiceSmall on PyTorch: the network, and the recogniser that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.audio.cmvn import read_am_mvn
from workbench.audio.frontend import Frontend
from workbench.decoding.ctc import greedy
from workbench.families.sanm import SanmConfig
from workbench.families.sensevoice import (
    QUERIES,
    UNKNOWN_EMOTION,
    SenseVoiceModel,
    SenseVoiceOptions,
    query_ids,
    read_sensevoice,
    read_tags,
    timed_tokens,
)
from workbench.opening import Settings
from workbench.runtimes.pytorch.device import prepare
from workbench.runtimes.pytorch.sanm import SanmEncoder
from workbench.runtimes.pytorch.settle import settle
from workbench.runtimes.pytorch.tap import Recorder, Tap, no_tap
from workbench.runtimes.pytorch.weights import build, load_into, read_state_dict
from workbench.session import StageFilter
from workbench.transcription import Heard, SpeechSession


class CtcHead(nn.Module):
    """The linear layer from encoder output to the vocabulary."""

    def __init__(self, size: int, vocabulary: int):
        super().__init__()
        self.ctc_lo = nn.Linear(size, vocabulary)

    def forward(self, encoded: Tensor) -> Tensor:
        """[B, T, D] to logits [B, T, V]."""
        return self.ctc_lo(encoded)


class SenseVoiceNetwork(nn.Module):
    """Query frames, SAN-M encoder, CTC head."""

    def __init__(self, encoder: SanmConfig, vocabulary: int, dropout: float = 0.0):
        super().__init__()
        self.encoder = SanmEncoder(encoder, dropout)
        self.ctc = CtcHead(encoder.output_size, vocabulary)
        # Not nn.Embedding's own normal_: on tensors without memory it makes torch import sympy, which takes seconds.
        queries = torch.empty(QUERIES, encoder.input_size).uniform_(-(3**0.5), 3**0.5)
        self.embed = nn.Embedding.from_pretrained(queries, freeze=False)

    def forward(self, features: Tensor, queries: Tensor, lengths: Tensor | None = None, tap: Tap = no_tap) -> Tensor:
        """CTC logits [B, 4 + T, V].

        Args:
            features: [B, T, input], after LFR and CMVN.
            queries: rows of the query embedding [B, 4].
            lengths: frames of each row [B], or None when all rows are full.
        """
        x = torch.cat([self.embed(queries), features], dim=1)
        encoded = self.encoder(x, None if lengths is None else lengths + queries.shape[1], tap)
        return tap("logits", self.ctc(encoded))


class SenseVoice:
    """Recognises one stretch of speech with a loaded SenseVoice."""

    options_class = SenseVoiceOptions
    dtype = "float32"

    def __init__(self, model: SenseVoiceModel, device: torch.device):
        self.model = model
        self.device = device
        self.frontend = Frontend(model.frontend, read_am_mvn(model.cmvn_file) if model.cmvn_file else None)
        self.frontend_without_cmvn = Frontend(model.frontend, None)
        self.network = build(SenseVoiceNetwork, model.encoder, len(model.vocabulary))
        weights = model.checkpoint.weights
        where = f"{weights.parent.name}/{weights.name}"
        load_into(self.network, read_state_dict(weights), where, mapped_from=weights)
        settle(self.network, device, weights)
        self.unknown_emotion = model.vocabulary.ids.get(UNKNOWN_EMOTION)

    @torch.inference_mode()
    def recognise(self, samples: np.ndarray, options: SenseVoiceOptions, recorder: Recorder | None = None) -> Heard:
        """What is said in float32 samples [n] at the checkpoint's rate."""
        tap: Tap = recorder or no_tap
        frontend = self.frontend_without_cmvn if options.cmvn == "off" else self.frontend
        front = frontend(samples, dither=options.dither)
        if recorder:
            for stage in ("fbank", "lfr", "features"):
                recorder.put(f"frontend.{stage}", getattr(front, stage))
        features = torch.from_numpy(front.features)[None].to(self.device)
        logits = self.network(features, torch.tensor([query_ids(options)], device=self.device), tap=tap).cpu()
        if recorder and recorder.wanted("ctc.posteriors"):
            recorder.put("ctc.posteriors", F.softmax(logits[0], dim=-1).numpy())
        if options.ban_emo_unk and self.unknown_emotion is not None:
            logits[:, :, self.unknown_emotion] = -torch.inf
        path = greedy(logits[0].numpy(), self.model.blank)
        vocabulary = self.model.vocabulary
        pieces = [vocabulary.pieces[token.id] for token in path]
        language, tags = read_tags(pieces)
        tokens = timed_tokens(path, vocabulary, len(front.features), self.model.frontend.frame_seconds)
        return Heard(
            text=self.text_of([token.id for token in tokens]),
            language=language,
            tags=tags,
            tokens=tokens,
            ids=tuple(token.id for token in path),
        )

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of some of the visible tokens."""
        return self.model.vocabulary.text(ids).strip()

    def trace(self, samples: np.ndarray, options: SenseVoiceOptions, wanted: StageFilter) -> dict[str, np.ndarray]:
        """The stages of one pass over the samples."""
        recorder = Recorder(wanted)
        heard = self.recognise(samples, options, recorder)
        recorder.put("tokens", np.array(heard.ids, dtype=np.int64))
        recorder.put("text", np.array(heard.text))
        return recorder.stages


def open_session(directory: Path, name: str, settings: Settings) -> SpeechSession:
    """A session of the checkpoint in `directory`, called `name` in its results."""
    device = prepare(settings)
    return SpeechSession(name, "pytorch", SenseVoice(read_sensevoice(directory), device))
