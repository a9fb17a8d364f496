"""Vocabularies of any size for tests of chat with speech, and a fake network whose logits depend on all rows fed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from workbench.speech.layout import SpeechLayout
from workbench.speech.network import NeededLogits, Scores


@st.composite
def layouts(draw: st.DrawFn) -> SpeechLayout:
    """Vocabularies with shuffled special ids, gaps before the codec, and one stream or several."""
    ids = draw(st.permutations(range(12)))
    specials = draw(st.integers(12, 20))
    text_end = specials + draw(st.integers(1, 9))
    codec_first = text_end + draw(st.integers(0, 3))
    streams, layer = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    return SpeechLayout(codec_first + streams * layer, specials, text_end, codec_first, streams, layer, *ids[:9])


LAYOUT = SpeechLayout(
    vocabulary=60,
    text_first=12,
    text_end=30,
    codec_first=30,
    streams=5,
    layer_size=6,
    pad=0,
    bos=1,
    eos=2,
    eot=3,
    system=4,
    user=5,
    assistant=6,
    text=7,
    audio=8,
)


def hashed(history: Sequence[Sequence[int]], size: int) -> np.ndarray:
    """Logits float32 [size] that depend on every row, as those of a network do."""
    seed = hashlib.sha256(repr([list(map(int, row)) for row in history]).encode()).digest()
    return np.random.default_rng(list(seed)).normal(0, 2, size).astype(np.float32)


class FakeNetwork:
    """A network whose logits are a hash of what was fed; closing ids are likelier by `ends`."""

    dtype = "float32"

    def __init__(self, layout: SpeechLayout = LAYOUT, context: int = 400, ends: float = 0.0):
        self.layout, self.context, self.ends = layout, context, ends
        self.calls: list[str] = []

    def embed_audio(self, samples: np.ndarray, recorder: Any = None) -> Any:
        raise AssertionError("no test lets it hear")

    def trace(self, prompt: Sequence[Any], recorder: Any) -> None:
        raise AssertionError("no test traces it")

    def open(self, prompt: Sequence[Any]) -> FakeState:
        return FakeState(self, [tuple(map(int, row)) for part in prompt for row in part])

    def logits(self, history: Sequence[Sequence[int]]) -> np.ndarray:
        """All logits [streams, vocabulary] after some rows."""
        layout = self.layout
        found = hashed(history, layout.streams * layout.vocabulary).reshape(layout.streams, -1)
        found[0, [layout.eos, layout.eot]] += np.float32(self.ends)
        return found


class FakeState:
    """A sequence of the fake network: the rows of each branch."""

    def __init__(self, network: FakeNetwork, prompt: list[tuple[int, ...]]):
        self.network, self.branches = network, [prompt]
        self.begun = False

    @property
    def length(self) -> int:
        return len(self.branches[0])

    def feed(self, rows: np.ndarray, wanted: NeededLogits) -> Scores:
        assert rows.shape[1:] == (self.network.layout.streams,)
        assert len(rows), "fed nothing"
        self.begun = True
        self.network.calls.append(f"feed {len(rows)}")
        for branch in self.branches:
            branch += [tuple(map(int, row)) for row in rows]
        assert self.length <= self.network.context, "fed beyond the context"
        layout = self.network.layout
        logits = [self.network.logits(branch) for branch in self.branches]
        columns = [number for first, end in wanted.main for number in range(first, end)]
        codec = None
        if wanted.codec:
            codec = np.stack(
                [[each[s, slice(*layout.interval(s))] for s in range(1, layout.streams)] for each in logits]
            ).reshape(len(logits), layout.streams - 1, layout.layer_size)
        return Scores(np.stack([each[0, columns] for each in logits]), codec)

    def split(self) -> None:
        assert self.begun and len(self.branches) == 1
        self.network.calls.append("split")
        self.branches.append([(0,) * self.network.layout.streams] * self.length)

    def join(self) -> None:
        assert len(self.branches) == 2
        self.network.calls.append("join")
        del self.branches[1]
