"""The waveform figure shows sample extremes, voiced spans and texts, at any width and length."""

from __future__ import annotations

import warnings
from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from workbench.plots import style
from workbench.plots.waveform import envelope, waveform_figure

RATE = 16_000


def png(figure: Figure) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer = BytesIO()
        figure.savefig(buffer, format="png")
    return np.asarray(Image.open(buffer).convert("RGBA"))


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@given(
    hnp.arrays(np.float32, st.integers(0, 300), elements=st.floats(-1, 1, width=32)),
    st.integers(1, 50),
)
def test_envelope_holds_minimum_and_maximum_of_equal_chunks(samples: np.ndarray, columns: int) -> None:
    middles, low, high = envelope(samples, columns)
    assert len(middles) == len(low) == len(high) <= columns
    if not len(samples):
        return
    block = -(-len(samples) // columns)
    parts = [samples[start : start + block] for start in range(0, len(samples), block)]
    assert low.tolist() == [min(part) for part in parts]
    assert high.tolist() == [max(part) for part in parts]
    assert middles.tolist() == [index * block + len(part) / 2 for index, part in enumerate(parts)]


def test_one_click_in_two_hours_is_seen() -> None:
    samples = np.zeros(7200 * RATE, dtype=np.int16)
    samples[5000 * RATE] = 1 << 14
    middles, _, high = envelope(samples, 1200)
    assert high.max() == 0.5
    assert middles[high.argmax()] / RATE == pytest.approx(5000, abs=3)
    figure = waveform_figure(samples, RATE)
    assert figure.axes[0].get_ylim() == pytest.approx((-0.54, 0.54))
    assert figure.axes[0].get_xlim() == (0, 7200)


def test_voiced_spans_are_shaded_and_coloured_at_their_times() -> None:
    samples = np.sin(np.arange(4 * RATE) / 9).astype(np.float32)
    image = png(waveform_figure(samples, RATE, voiced=[(1.0, 2.0)], width=10))
    left, inner = style.LEFT_INCHES, 10 - style.LEFT_INCHES - style.RIGHT_INCHES
    middle = image.shape[0] // 2

    def at(seconds: float, row: int) -> tuple[str, int]:
        pixel = image[row, round((left + inner * seconds / 4) * style.DOTS_PER_INCH)]
        return to_hex(pixel[:3] / 255), int(pixel[3])

    signal, quiet = (style.SIGNAL, 255), (style.QUIET, 255)
    assert [at(seconds, middle) for seconds in (0.5, 1.5, 1.98, 2.02, 3.5)] == [quiet, signal, signal, quiet, quiet]
    top = 20  # pixels below the edge: over the wave, inside the axes
    assert [at(seconds, top)[1] for seconds in (0.5, 0.98, 2.02, 3.5)] == [0, 0, 0, 0]
    assert 0 < at(1.5, top)[1] < 80
    assert image[0, 0, 3] == image[-1, -1, 3] == 0  # the background is transparent


def test_waveform_without_spans_uses_the_signal_colour_everywhere() -> None:
    image = png(waveform_figure(np.sin(np.arange(RATE) / 9), RATE))
    colours = {to_hex(pixel[:3] / 255) for pixel in image[image.shape[0] // 2, 200:1200]}
    assert colours == {style.SIGNAL}


@pytest.mark.parametrize("width", [2.6, 4.0, 10.0])
def test_segment_texts_are_legible_and_inside_the_figure_at_any_width(width: float) -> None:
    segments = [
        (0.2, 1.0, "three seven one"),
        (1.0, 1.05, "x y z w"),
        (1.06, 2.9, "今天天气很好 and so much more " * 6),
    ]
    figure = waveform_figure(np.zeros(3 * RATE, dtype=np.float32), RATE, [(0.2, 1.0)], segments, width=width)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    shown = [text for text in axes.texts if text.get_text()]
    assert shown[0].get_text().startswith("three" if width > 3 else "th")
    assert shown[-1].get_text().endswith("…")
    assert not any("x y" in text for text in texts(figure))
    boxes = [text.get_window_extent() for text in [*shown, axes.xaxis.label, axes.yaxis.label]]
    frame = figure.bbox
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1 for box in boxes)
    assert all(one.x1 <= other.x0 for one, other in pairwise(boxes[: len(shown)]))
    assert min(text.get_fontsize() for text in shown) >= 7
    assert png(figure).shape[1] == pytest.approx(width * style.DOTS_PER_INCH, abs=1)


def test_segment_texts_start_at_their_segments() -> None:
    segments = [(2.0, 3.0, "second"), (0.0, 1.0, "first"), (3.0, 3.5, " ")]
    figure = waveform_figure(np.zeros(4 * RATE), RATE, segments=segments)
    assert [(text.get_position()[0], text.get_text()) for text in figure.axes[0].texts] == [
        (0.0, "first"),
        (2.0, "second"),
    ]


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (np.zeros(0, dtype=np.float32), ["no samples"]),
        (np.zeros(160, dtype=np.float32), []),
        (np.array([0.3], dtype=np.float32), []),
        (np.array([0.1, np.nan, np.inf, -0.2] * 99, dtype=np.float32), []),
    ],
)
def test_empty_and_unusual_recordings_are_drawn(samples: np.ndarray, said: list[str]) -> None:
    figure = waveform_figure(samples, RATE, voiced=[(0.0, 0.005)], segments=[(0.0, 0.001, "")])
    assert texts(figure) == said
    assert np.isfinite(figure.axes[0].get_ylim()).all()
    assert png(figure)[..., 3].any()


def test_near_silence_is_not_magnified() -> None:
    low, high = waveform_figure(np.full(RATE, 1e-5), RATE).axes[0].get_ylim()
    assert high - low > 0.04


def test_wrong_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 100\) at 16000 Hz"):
        waveform_figure(np.zeros((2, 100)), RATE)
    with pytest.raises(ValueError, match="0 Hz"):
        waveform_figure(np.zeros(100), 0)
