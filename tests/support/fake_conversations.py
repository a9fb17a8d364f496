"""A conversation session around a made-up network, codec and tokenizer: nothing is loaded, and every id is exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.support.speech_layouts import LAYOUT, FakeNetwork
from workbench.families.speechlm.parts import SpeechDefaults
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.speech.layout import SpeechLayout

HOP, RATE = 4, 16000
REACH = (2, 1)  # frames
HEARD = 1600  # samples of a recording for each position of the prompt


class FakeCodec:
    """Each sample is a sum over the codes nearby, so that chunks need their context."""

    sample_rate, hop, receptive_field = RATE, HOP, REACH

    def __init__(self, layout: SpeechLayout = LAYOUT):
        self.layout = layout
        self.closed = False

    def encode(self, samples: np.ndarray) -> np.ndarray:
        frames = len(samples) // HOP
        loud = np.abs(samples[: frames * HOP]).reshape(-1, HOP).sum(axis=1)
        return (loud[:, None] * 1000 + np.arange(self.layout.streams)).astype(np.int64) % self.layout.codes

    def decode(self, codes: np.ndarray, recorder: Any = None) -> np.ndarray:
        before, after = REACH
        own = np.pad(codes.sum(axis=1).astype(np.float32), (before, after))
        around = np.stack([own[n : n + len(codes)] for n in range(before + after + 1)]).T
        samples = (around @ np.array([1, 2, 4, 8], np.float32) / 1000)[:, None] + np.arange(HOP, dtype=np.float32) / 100
        if recorder is not None:
            for stage, value in (("codes", codes), ("latents", around), ("audio", samples.reshape(-1))):
                recorder.put(f"codec.{stage}", value)
        found: np.ndarray = samples.reshape(-1).astype(np.float32)
        return found

    def close(self) -> None:
        self.closed = True


class FakeAudioNetwork(FakeNetwork):
    """What it hears becomes rows of ids; a trace records the rows of the prompt."""

    def embed_audio(self, samples: np.ndarray, recorder: Any = None) -> Any:
        rows = np.zeros((len(samples) // HEARD, self.layout.streams), np.int64)
        rows[:, 0] = self.layout.text_first + len(samples) % (self.layout.text_end - self.layout.text_first)
        if recorder is not None:
            recorder.put("tower.output", rows.astype(np.float32))
        return rows

    def trace(self, prompt: Sequence[Any], recorder: Any) -> None:
        recorder.put("llm.embeddings", np.concatenate(prompt).astype(np.float32))


class FakeTokenizer:
    """Every byte is a token, modulo the room; text goes back as letters."""

    def __init__(self, layout: SpeechLayout = LAYOUT):
        self.layout = layout

    def encode(self, text: str) -> list[int]:
        room = self.layout.text_end - self.layout.text_first
        return [self.layout.text_first + byte % room for byte in text.encode()]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(chr(ord("a") + number - self.layout.text_first) for number in ids)


def described(layout: SpeechLayout = LAYOUT, hears: bool = True, speaks: bool = True, **defaults: Any) -> Any:
    """What stands for a `SpeechLmModel`."""
    tower = SimpleNamespace(rows=lambda samples: samples // HEARD, chunk=HEARD, mel=SimpleNamespace(hop=1))
    usual = {"max_text_tokens": 12, "max_audio_rows": 60, "min_audio_rows": 20, "cfg": 1.0}
    return SimpleNamespace(
        directory=Path("fake-speechlm"),
        tokenizer=FakeTokenizer(layout),
        tower=tower if hears else None,
        codec="fake" if speaks else None,
        defaults=SpeechDefaults(**{**usual, **defaults}),
    )


def fake_conversation(
    speaks: bool = True, hears: bool = True, context: int = 400, ends: float = 0.0, **defaults: Any
) -> ConversationSession:
    """A session; `ends` makes closing ids likelier."""
    network = FakeAudioNetwork(context=context, ends=ends)
    codec: Any = FakeCodec() if speaks else None
    return ConversationSession(
        "fake", "pytorch", described(hears=hears, speaks=speaks, **defaults), network, codec, ("a fake",)
    )
