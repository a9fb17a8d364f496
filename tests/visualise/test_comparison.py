"""Two pictures side by side, their difference, and how the second side is specified."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from tests.visualise.conftest import SAMPLE, SceneOf
from workbench.core.errors import BadInput
from workbench.plots.layers import Axis, Layer, Scale, Unit
from workbench.prepared import pool as prepared
from workbench.prepared.pool import PreparedProcesses
from workbench.registry.registry import Registry
from workbench.visualise.comparison import difference, side_by_side
from workbench.visualise.options import ViewOptions
from workbench.visualise.picture import Picture
from workbench.visualise.run import compared_pictures, picture_of, split_options, visualise
from workbench.visualise.sides import read_other
from workbench.visualise.views import find_view


def picture(values: np.ndarray, high: float = 1.0, view: str = "ctc", runtime: str = "pytorch") -> Picture:
    image = Layer("image", "image", "an image", values, Axis("seconds", "seconds"), scale=Scale("value", 0.0, high))
    marks = Layer("marks", "marks", "marks", np.array([0.5]), Axis("seconds", "seconds"), over=True)
    return Picture(view, "m", runtime, "title", "sentence", (image, marks), seconds=2.0)


def test_difference_picture_is_second_minus_first_with_a_zero_centred_scale() -> None:
    one, other = np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[0.5, 1.0], [1.0, 3.25]])
    found = difference(picture(one), picture(other, runtime="gguf"))
    [layer] = found.layers
    np.testing.assert_array_equal(layer.values, other - one)
    assert layer.scale == Scale("difference", -1.0, 1.0, diverging=True)
    assert found.title == "title: m on gguf minus m on pytorch"
    [equal] = difference(picture(one), picture(one)).layers
    assert not equal.values.any() and equal.scale is not None and equal.scale.high > 0


def test_side_by_side_pictures_share_the_scale_and_include_the_difference() -> None:
    found = side_by_side(picture(np.ones((2, 2)), 1.0), picture(np.zeros((2, 2)), 4.0, runtime="gguf"))
    assert [layer.name for layer in found.layers] == ["a_image", "a_marks", "b_image", "b_marks", "difference_image"]
    assert found["a_image"].scale == found["b_image"].scale == Scale("value", 0.0, 4.0)
    assert found["difference_image"].scale == Scale("difference", -1.0, 1.0, diverging=True)
    assert found.render("svg").count(b"m on gguf: an image") == 1


def test_pictures_of_different_shapes_have_a_note_instead_of_a_difference() -> None:
    one, other = picture(np.ones((2, 2))), picture(np.ones((2, 3)), runtime="gguf")
    with pytest.raises(BadInput, match="an image is 2×2 values in the first and 2×3 in the second"):
        difference(one, other)
    assert any("2×3" in note for note in side_by_side(one, other).notes)
    with pytest.raises(BadInput, match="pictures of ctc and of cif are given"):
        difference(one, picture(np.ones((2, 2)), view="cif"))


def token_picture(words: tuple[str, ...], values: np.ndarray, unit: Unit = "tokens", step: float = 0.06) -> Picture:
    axis = Axis("token", unit, ticks=words, down=True)
    times = Axis("seconds", "seconds", 0.0, step)
    image = Layer("image", "image", "posteriors", values, times, axis, scale=Scale("probability", 0.0, 1.0))
    return Picture("ctc", "m", "pytorch", "title", "sentence", (image,), seconds=2.0)


def test_rows_of_tokens_are_subtracted_from_rows_of_the_same_tokens() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    compared = difference(token_picture(("a", "b", "c"), rows), token_picture(("c", "a", "b"), rows[[2, 0, 1]] + 0.5))
    np.testing.assert_array_equal(compared["image"].values, np.full((3, 2), 0.5))
    assert compared["image"].y.ticks == ("a", "b", "c") and not compared.notes

    # Only one side has some tokens.
    compared = difference(token_picture(("a", "b", "c"), rows), token_picture(("d", "b", "e", "a"), np.ones((4, 2))))
    np.testing.assert_array_equal(compared["image"].values, 1 - rows[:2])
    assert compared["image"].y.ticks == ("a", "b")
    assert compared.notes == (
        "posteriors: only the first has 'c' and only the second has 'd', 'e'; the difference shows the other tokens",
    )

    # A text that is there twice does not tell its row.
    compared = difference(token_picture(("∅", "a", "∅"), rows), token_picture(("∅", "b", "∅"), rows))
    assert not compared["image"].values.any() and "such as 'a' in the first and 'b' in the second" in compared.notes[0]


def test_rows_of_other_times_units_and_layers_have_no_difference() -> None:
    rows = np.ones((2, 3))
    first = token_picture(("0", "8"), rows, "layers")
    with pytest.raises(
        BadInput, match=r"the rows of posteriors are 0\.06 s long in the first and 0\.04 s in the second"
    ):
        difference(first, token_picture(("0", "8"), rows, "layers", 0.04))
    with pytest.raises(BadInput, match="posteriors has other layers in the first than in the second"):
        difference(first, token_picture(("0", "9"), rows, "layers"))
    with pytest.raises(BadInput, match="posteriors is over layers in the first and over tokens in the second"):
        difference(first, token_picture(("0", "8"), rows))


def test_pictures_of_two_runtimes_agree_and_two_models_are_compared_at_equal_times(scene_of: SceneOf) -> None:
    one, gguf = scene_of("demo/sensevoice"), scene_of("demo/sensevoice", "gguf")
    found = difference(picture_of(one, "ctc"), picture_of(gguf, "ctc"))
    assert np.abs(found["posteriors"].values).max() < 1e-2
    beside = compared_pictures(one, gguf, "similarity")
    np.testing.assert_allclose(np.diag(beside["cka_between"].values), 1, atol=1e-4)
    np.testing.assert_allclose(beside["cka_between"].values, beside["a_cka"].values, atol=1e-3)
    models = compared_pictures(one, scene_of("demo/paraformer"), "similarity")
    assert models["cka_between"].values.shape == (7, 5) and models["cka_between"].values.min() > 0
    assert models["cka_between"].values.max() < 1 and "against='demo/paraformer@pytorch'" in models.code


def test_code_of_a_picture_reproduces_the_picture(scene_of: SceneOf, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scene = scene_of("demo/paraformer")
    first = picture_of(scene, "attention", ViewOptions(layer=1, attention="mean"))
    space: dict = {}
    exec(compile(first.code, "code", "exec"), space)
    again = space["picture"]
    np.testing.assert_allclose(again["attention"].values, first["attention"].values, atol=1e-6)
    assert (tmp_path / "attention.svg").read_bytes().startswith(b"<?xml") and again.code == first.code


def test_settings_are_in_the_code_and_in_the_names_of_both_sides(registry: Registry) -> None:
    picture = visualise(
        SAMPLE, "demo/sensevoice", view="waveform", against="pytorch+cmvn=off", registry=registry, dtype="bfloat16"
    )
    assert "demo/sensevoice on pytorch dtype=bfloat16 and demo/sensevoice on pytorch cmvn=off" in picture.title
    assert "runtime='pytorch', dtype='bfloat16', view=" in picture.code


def test_models_without_a_common_input_are_refused_before_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "open", None)
    with pytest.raises(BadInput, match="demo/qwen3 takes a text and demo/sensevoice a recording; expected two models"):
        visualise("Count.", "demo/qwen3", view="lens", against="demo/sensevoice")


def test_both_sessions_of_a_comparison_may_come_from_prepared_processes(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = PreparedProcesses()
    monkeypatch.setattr(prepared, "PREPARED", pool)
    monkeypatch.setenv(prepared.SWITCH, "")
    were_on: list[bool] = []
    open_session = registry.open

    def noted(*arguments: Any, **options: Any) -> Any:
        were_on.append(pool.on)
        return open_session(*arguments, **options)

    monkeypatch.setattr(registry, "open", noted)
    visualise(SAMPLE, view="waveform", against="demo/paraformer", registry=registry)
    assert were_on == [True, True] and not pool.on


def test_view_is_compared_against_another_quantisation(registry: Registry) -> None:
    found = visualise(SAMPLE, "demo/paraformer", "gguf", "cif", against="q8_0", quantization="f32", registry=registry)
    assert found["a_weights"].values.shape == found["b_weights"].values.shape
    assert 0 < np.abs(found["difference_weights"].values).max() < 0.5 and "against='q8_0'" in found.code
    with np.load(io.BytesIO(found.render("npz"))) as arrays:
        assert "difference_weights" in arrays


@pytest.mark.parametrize(
    ("text", "model", "runtime", "settings"),
    [
        ("gguf", "demo/sensevoice", "gguf", {}),
        ("gguf:q8_0", "demo/sensevoice", "gguf", {"quantization": "q8_0"}),
        ("q4_0", "demo/sensevoice", "gguf", {"quantization": "q4_0"}),
        ("pytorch:bf16", "demo/sensevoice", "pytorch", {"dtype": "bfloat16"}),
        ("demo/paraformer", "demo/paraformer", None, {}),
        ("demo/paraformer@gguf:q8_0", "demo/paraformer", "gguf", {"quantization": "q8_0"}),
    ],
)
def test_second_side_specification_is_parsed(
    text: str, model: str, runtime: str | None, settings: dict[str, str], registry: Registry
) -> None:
    card, side = read_other(registry, text, registry.card("demo/sensevoice"))
    assert (card.id, side.runtime, dict(side.settings)) == (model, runtime, settings)


@pytest.mark.parametrize("text", ["", "nonsense", "gguf:q99", "demo/paraform@gguf", "demo/sensevoice@"])
def test_invalid_second_side_raises_one_line_error(text: str, registry: Registry) -> None:
    with pytest.raises(BadInput) as raised:
        read_other(registry, text, registry.card("demo/sensevoice"))
    assert "\n" not in str(raised.value)


def test_options_are_split_into_view_session_and_model_options() -> None:
    given = {"layer": 2, "threads": 1, "language": "en", "head": None}
    view, settings, own = split_options(find_view("attention"), given)
    assert view == ViewOptions(layer=2) and settings == {"threads": 1} and own == {"language": "en"}
    with pytest.raises(BadInput, match="the view waveform has no option layer; it has none"):
        split_options(find_view("waveform"), {"layer": 2})
    with pytest.raises(BadInput, match="option layer of the view attention is -1; expected 0 to"):
        split_options(find_view("attention"), {"layer": -1})
