"""A registry of models that converse without any network: they echo text word by word, and speak a steady tone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tests.support.fake_panels import CARDS as HEARING
from tests.support.fake_panels import FakeRegistry
from workbench.core.options import ConversingOptions, option
from workbench.families import FAMILIES
from workbench.families.family import Cell, Family
from workbench.registry.availability import Availability
from workbench.registry.cards import Card
from workbench.session.conversation import Answer, AnswerStart, AudioPiece, ConversationEvent
from workbench.session.messages import Message, check_messages
from workbench.session.values import CONVERSATION, PROMPT, Piece
from workbench.speech.layout import SpeechLayout

RATE, HOP, STREAMS, LAYER, FIRST = 16000, 320, 8, 1025, 152192
ASSISTANT, TEXT, AUDIO, EOT, EOS = 6, 7, 8, 3, 2
MARKERS = {"pad": 0, "bos": 1, "eos": EOS, "eot": EOT, "system": 4, "user": 5, "assistant": ASSISTANT}
LAYOUT = asdict(
    SpeechLayout(160392, 256, FIRST, FIRST, STREAMS, LAYER, **MARKERS, text=TEXT, audio=AUDIO),
)
CHUNK = 5  # rows between two chunks of samples

CARDS = (
    Card("fake/speech", "Fake SpeechLM", "fake_speech", {"demo": "nowhere"}, ("en",), ("converse",), licence="none"),
    Card(
        "fake/words", "Fake language model", "fake_words", {"demo": "nowhere"}, ("en",), ("converse",), licence="none"
    ),
)


@dataclass(frozen=True)
class FakeSpeechOptions(ConversingOptions):
    """Some of the options of a SpeechLM."""

    text_temperature: float = option(0.6, "how freely text is drawn", minimum=0.0, maximum=100.0)
    audio_temperature: float = option(0.8, "how freely speech is drawn", minimum=0.0, maximum=100.0)
    max_audio_rows: int = option(60, "most rows of speech, 50 a second", minimum=1, maximum=6000)
    cfg: float = option(1.0, "classifier-free guidance of speech; 1 is off", minimum=1.0, maximum=10.0)
    seed: int = option(0, "seed of the draws", minimum=0)
    probabilities: bool = option(False, "report the probability of each choice")


FAMILY = Family(
    name="fake_speech",
    title="Fake SpeechLM",
    module="tests.support.fake_chat",
    recognise="never",
    options="FakeSpeechOptions",
    cells={"pytorch": Cell("tests.support.fake_chat"), "vllm": Cell("tests.support.fake_chat")},
    tasks=("converse",),
    input=CONVERSATION,
)
WORDS = replace(FAMILY, name="fake_words", title="Fake words", input=PROMPT)


def never(directory: Any) -> bool:
    """No directory is a checkpoint of these families."""
    return False


class FakeConverser:
    """Answers with the words of the last message, and with a tone whose pitch the seed sets.

    Args:
        pace: seconds of computing for each row; a row is 0.02 s of audio.
    """

    weight_bytes = 7_200_000
    occupied = False

    def __init__(self, model: str, speaks: bool, pace: float = 0.004):
        self.model, self.runtime, self.speaks, self.pace = model, "pytorch", speaks, pace
        self.calls: list[tuple[tuple[Message, ...], dict[str, Any]]] = []
        self.rows = 0  # made in the last call
        self.abandoned = threading.Event()
        self.may_end = threading.Event()  # the last row of an answer is made when it is set
        self.may_end.set()
        self.fault: Exception | None = None
        self.pid: int | None = None  # None as long as the model is not loaded
        self.load_seconds = 0.5
        self.memory_bytes = 412_000_000

    def converse_stream(self, messages: Any, **options: Any) -> Iterator[ConversationEvent]:
        asked = check_messages(messages)
        self.calls.append((asked, options))
        self.rows = 0
        if self.fault is not None:
            raise self.fault
        given = {each: getattr(FakeSpeechOptions(), each) for each in FakeSpeechOptions.__dataclass_fields__} | options
        if self.pid is None:
            time.sleep(self.load_seconds)
            self.pid = 4711
        try:
            yield AnswerStart(given, 12, LAYOUT if self.speaks else None, self.load_seconds)
            yield from self._answer(asked[-1].text or "heard you", given)
        except GeneratorExit:
            self.abandoned.set()
            raise

    def _answer(self, said: str, given: Mapping[str, Any]) -> Iterator[ConversationEvent]:
        begun = time.perf_counter()
        wants = "text" if not self.speaks else {"auto": "text_audio"}.get(given["modalities"], given["modalities"])
        ids: list[int] = []
        first_text = first_audio = None
        words = said.split() if "text" in wants else []
        if words:
            ids.append(TEXT)
        for number, word in enumerate(words):
            time.sleep(self.pace)
            ids.append(300 + number)
            first_text = first_text or time.perf_counter() - begun
            yield Piece(word if number == 0 else f" {word}", ((TEXT,) if number == 0 else ()) + (300 + number,))
        samples, streams = np.zeros(0, np.float32), None
        if "audio" in wants:
            markers = [EOT, ASSISTANT, AUDIO] if words else [AUDIO]
            ids += markers
            yield Piece("", tuple(markers))
            made: list[np.ndarray] = []
            rows = self._rows(int(given["max_audio_rows"]), int(given["seed"]))
            tone = self._tone((len(rows) - STREAMS + 1) * HOP, int(given["seed"]))
            sent = 0
            for number, row in enumerate(rows, 1):
                time.sleep(self.pace)
                if number == len(rows):
                    self.may_end.wait(60)
                self.rows = number
                ids.append(int(row[0]))
                end = max(0, number - STREAMS + 1) * HOP
                whole = number == len(rows) or (number % CHUNK == 0 and end > sent)
                part = tone[sent:end] if whole else tone[:0]
                sent += len(part)
                if len(part):
                    first_audio = first_audio or time.perf_counter() - begun
                    made.append(part)
                yield AudioPiece(part, RATE, number, rows[number - 1 : number])
            samples, streams = np.concatenate(made), rows
        ids.append(EOS)
        likely = np.full((len(ids), STREAMS), np.nan)
        likely[:, 0] = np.linspace(0.5, 0.99, len(ids))
        if streams is not None:
            likely[-1 - len(streams) : -1, 1:] = 0.7
        yield Answer(
            self.model,
            self.runtime,
            " ".join(words),
            samples if len(samples) else None,
            RATE if len(samples) else None,
            "stop",
            tuple(ids),
            streams,
            12,
            self.load_seconds,
            time.perf_counter() - begun,
            first_text,
            first_audio,
            1 / self.pace if self.pace else None,
            64 << 20,
            probabilities=likely if given["probabilities"] else None,
            layout=LAYOUT if self.speaks else None,
            settings=given,
        )

    @staticmethod
    def _rows(frames: int, seed: int) -> np.ndarray:
        """Rows [frames + 7, 8] of codes in the delay pattern; pads at the corners."""
        pads = FIRST + LAYER * np.arange(STREAMS)
        codes = np.random.default_rng(seed).integers(0, LAYER - 1, (frames, STREAMS))
        rows = np.tile(pads, (frames + STREAMS - 1, 1))
        for stream in range(STREAMS):
            rows[stream : stream + frames, stream] = pads[stream] + 1 + codes[:, stream]
        return rows

    @staticmethod
    def _tone(samples: int, seed: int) -> np.ndarray:
        moments = np.arange(samples) / RATE
        shape = 0.3 * np.sin(2 * np.pi * (330 + 110 * seed) * moments) * (0.6 + 0.4 * np.sin(2 * np.pi * 1.5 * moments))
        return shape.astype(np.float32)

    def close(self) -> None:
        pass


class FakeChatRegistry(FakeRegistry):
    """One model that speaks, and one that writes."""

    listed = (*CARDS, *HEARING)

    def __init__(self) -> None:
        super().__init__()
        self.speaker = FakeConverser("fake/speech", True)
        self.writer = FakeConverser("fake/words", False)
        self.sessions |= {"fake/speech": self.speaker, "fake/words": self.writer}  # type: ignore[dict-item]

    def availability(self, card: Card, runtime: str) -> Availability:
        """The model that speaks runs on two runtimes."""
        speaks_there = card.id == "fake/speech" and runtime == "vllm"
        return Availability(True, None, False) if speaks_there else super().availability(card, runtime)


def add_families(patch: pytest.MonkeyPatch) -> None:
    """Makes the families of these models known for the length of a test."""
    known = MappingProxyType(
        {**{name: FAMILIES[name] for name in FAMILIES}, "fake_speech": FAMILY, "fake_words": WORDS}
    )
    patch.setattr(FAMILIES, "_built_in", dict(known))
    patch.setattr(FAMILIES, "_all", dict(known))
