"""Figures of embeddings show every value, norm and point at its position, with labels that do not overlap."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tests.plots.test_stages import figure_lines, image_of
from tests.plots.test_waveform import png
from workbench.plots.embeddings import norms_figure, plane_figure, values_figure

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("width", [2.6, 4.2, 10.0])
def test_embedding_values_are_drawn_at_their_token_and_channel(width: float) -> None:
    values = RANDOM.standard_normal((40, 30)).astype(np.float32)
    figure = values_figure(values, width, 2.0)
    assert np.array_equal(image_of(figure), values.T)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("token", "channel")
    assert figure.get_size_inches().tolist() == [width, 2.0]
    assert png(figure).any()


def test_norms_are_drawn_as_a_line_over_the_percentile_band() -> None:
    norms, others = np.array([1.0, 3.0, 2.0]), np.linspace(0, 100, 101)
    figure = norms_figure(norms, others)
    middle, line = sorted(figure_lines(figure), key=len)
    assert middle.tolist() == [50, 50] and line.tolist() == [1, 3, 2]
    [band] = figure.axes[0].patches
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((5, 95))
    assert figure.axes[0].get_ylim()[0] == 0 and figure.axes[0].get_xlim() == (-0.5, 2.5)
    assert len(figure_lines(norms_figure(norms))) == 1


@pytest.mark.parametrize("count", [1, 2, 5000])
@pytest.mark.parametrize("width", [2.6, 10.0])
def test_embedding_figures_are_drawn_for_any_number_of_tokens(count: int, width: float) -> None:
    points = RANDOM.standard_normal((count, 2))
    assert png(norms_figure(np.abs(points[:, 0]), np.zeros(0), width, 1.7)).any()
    figure = norms_figure(np.abs(points[:, 0]))
    figure.draw_without_rendering()
    assert all(tick == int(tick) for tick in figure.axes[0].get_xticks())
    figure = plane_figure(points, np.zeros((0, 2)), (0.6, 0.4), ["word"] * count, width)
    assert png(figure).any()
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == (
        "component 1 (60% of variance)",
        "component 2 (40% of variance)",
    )


def test_tokens_and_comparison_rows_are_drawn_at_their_points() -> None:
    tokens, others = RANDOM.standard_normal((7, 2)), RANDOM.standard_normal((50, 2)) * 3
    figure = plane_figure(tokens, others, (0.5, 0.2))
    drawn = [np.asarray(each.get_offsets()) for each in figure.axes[0].collections]
    assert np.array_equal(drawn[0], others) and np.array_equal(drawn[1], tokens)
    [path] = figure.axes[0].lines
    assert np.array_equal(np.asarray(path.get_xydata()), tokens)


@pytest.mark.parametrize("width", [2.6, 4.2, 10.0])
def test_token_labels_are_next_to_their_points_and_do_not_overlap(width: float) -> None:
    tokens = RANDOM.standard_normal((200, 2))
    words = [f" word{number}$x^2$ " for number in range(200)]
    figure = plane_figure(tokens, tokens * 2, (0.5, 0.2), words, width)
    figure.draw_without_rendering()
    [axes, *_] = figure.axes
    written = [text for text in axes.texts if text.get_text()]
    assert 0 < len(written) <= 16
    frame, points = axes.get_window_extent(), axes.transData.transform(tokens)
    boxes = [text.get_window_extent() for text in written]
    for text, box in zip(written, boxes):
        number = int(text.get_text().removeprefix("word").partition("$")[0])
        assert box.x0 >= frame.x0 - 1 and box.x1 <= frame.x1 + 8
        assert min(abs(points[number][0] - box.x0), abs(points[number][0] - box.x1)) < 12
    for one, other in combinations(boxes, 2):
        assert one.x1 <= other.x0 + 1 or other.x1 <= one.x0 + 1 or one.y1 <= other.y0 + 6 or other.y1 <= one.y0 + 6


def test_unreadable_token_labels_are_omitted() -> None:
    tokens = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    figure = plane_figure(tokens, np.zeros((0, 2)), (0.5, 0.5), ["\ufffd\ufffd", " ", "\U000f1234", "seven"])
    assert [text.get_text() for text in figure.axes[0].texts] == ["seven"]


def test_legend_texts_stay_inside_the_figure() -> None:
    for width in (2.6, 3.0, 4.2):
        for figure in (
            norms_figure(np.ones(3), np.ones(3), width),
            plane_figure(np.eye(2), np.eye(2), (0.5, 0.5), width=width),
        ):
            figure.draw_without_rendering()
            for text in figure.texts:
                assert text.get_window_extent().x1 <= figure.bbox.x1 + 1
