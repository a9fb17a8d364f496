"""Made-up pictures for the tests of the page: every kind of layer, texts that look like HTML, and a minute of sound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from panels.visualise.run import DIFFERENCE, PictureSet
from workbench.plots.layers import Axis, Layer, Scale
from workbench.session.values import Token
from workbench.visualise.comparison import difference
from workbench.visualise.picture import Picture

NASTY = "<img src=x onerror=window.stolen=1>"
WORDS = (Token(1, "▁three", 0.25, 0.5), Token(2, NASTY, 0.75, 1.0), Token(3, "▁one", 1.25, 1.75))
RATE = 16000
FRAMES, FRAME = 50, 0.04  # two seconds
TIME = Axis("seconds", "seconds", 0.0, FRAME)
PROBABILITY = Scale("probability", 0.0, 1.0)


def sound(seconds: float) -> Any:
    """What the page reads of a scene: its recording, a tone."""
    samples = 0.3 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * RATE)) / RATE)
    recording = SimpleNamespace(samples=samples.astype(np.float32), sample_rate=RATE, seconds=seconds)
    return SimpleNamespace(recording=recording)


def every_kind(runtime: str, shift: float = 0.0) -> Picture:
    """Two seconds with a layer of each kind; `shift` is added to the image."""
    frames = np.arange(FRAMES)
    bands = np.add.outer(np.arange(40.0), frames) + shift
    tokens = Axis("token", "tokens", ticks=tuple(token.text for token in WORDS), down=True)
    cross = np.full((2, 3, FRAMES), 0.01)
    for row, place in enumerate((9, 21, 37)):
        cross[:, row, place] = 0.9
    shares = np.array([[0.9, 0.2, 0.4], [0.5, 0.6, 0.7]])
    layers = (
        Layer("bands", "image", "filter bank", bands, TIME, Axis("mel bin"), scale=Scale("log energy", 0.0, 90.0)),
        Layer("edges", "marks", "edges", np.array([0.5, 1.0]), TIME, labels=("a", NASTY), over=True),
        Layer("wave", "band", "waveform", np.stack([-frames / 50, frames / 50]), TIME, Axis("amplitude")),
        Layer("sums", "lines", "two sums", np.stack([frames, 2.0 * frames]), TIME, Axis("sum"), ("one", "two")),
        Layer("weights", "bars", f"weights of {runtime}", np.sin(frames / 5) ** 2, TIME, Axis("weight")),
        Layer("segments", "spans", "segments", np.array([[0.0, 1.1], [1.1, 2.0]]), TIME, labels=("first", "second")),
        Layer("cross", "image", "cross attention", cross, TIME, tokens, ("head 0", "head 1"), PROBABILITY),
        Layer("lens", "table", "logit lens", shares, tokens, Axis("layer", "layers"), ("a", "b", NASTY, "d", "e", "f")),
        Layer(
            "near",
            "points",
            "embeddings",
            np.array([[0.0, 0.0], [1.0, 2.0]]),
            Axis("first"),
            Axis("second"),
            ("x", "y"),
        ),
    )
    code = f"import workbench\n\npicture = workbench.visualise('a.wav', runtime={runtime!r})\n"
    notes = (f"a note of {runtime}",)
    return Picture("waveform", "fake/sense", runtime, "Every kind", "All layers.", layers, 2.0, WORDS, notes, code)


def minute(heads: int = 16, frames: int = 1000) -> Picture:
    """A minute of attention [heads, frames, frames] and a filter bank."""
    apart = np.abs(np.subtract.outer(np.arange(frames), np.arange(frames))).astype(np.float32)
    attention = np.stack([np.exp(-apart / (head + 2)) for head in range(heads)])
    time = Axis("seconds", "seconds", 0.0, 60 / frames)
    bank = np.random.default_rng(0).normal(size=(80, 6000)).astype(np.float32)
    words = tuple(Token(place, f"word{place}", place * 0.5, place * 0.5 + 0.4) for place in range(120))
    layers = (
        Layer(
            "fbank",
            "image",
            "filter bank",
            bank,
            Axis("seconds", "seconds", 0.0, 0.01),
            Axis("mel bin"),
            scale=Scale("log energy", -3, 3),
        ),
        Layer(
            "attention",
            "image",
            "attention",
            attention,
            time,
            Axis("seconds", "seconds", 0.0, 60 / frames, down=True),
            tuple(f"head {head}" for head in range(heads)),
            PROBABILITY,
        ),
    )
    return Picture("filterbank", "fake/sense", "pytorch", "A minute", "Sixteen heads.", layers, 60.0, words)


def picture_set(*pictures: Picture) -> PictureSet:
    """What the page keeps of one picture, or of two and their difference."""
    titles = [f"Side {place}" for place in range(len(pictures))]
    shown = list(pictures)
    if len(pictures) == 2:
        shown.append(difference(*pictures))
        titles.append(DIFFERENCE)
    import secrets

    scenes = (sound(pictures[0].seconds or 1.0),)
    return PictureSet(secrets.token_urlsafe(16), tuple(shown), tuple(titles), scenes, 0.1)
