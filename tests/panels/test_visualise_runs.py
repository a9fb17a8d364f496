"""The Visualise tab without a browser: binary parcels, requests, states of links, and the endpoint."""

from __future__ import annotations

import json
import re
import struct
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import panels.visualise.endpoint as endpoint
import panels.visualise.run as run
from panels.running.run_store import RunStore
from panels.visualise.events import VisualiseActions
from panels.visualise.own_recordings import OwnRecordings
from panels.visualise.parcel import parcel
from panels.widgets.samples import read_samples
from tests.support.fake_panels import broken, tone
from tests.support.made_pictures import NASTY, WORDS, every_kind, picture_set
from workbench.core.errors import BadInput
from workbench.plots.layers import Axis, Layer, Scale
from workbench.registry.sources import assets
from workbench.session.values import Token
from workbench.visualise.options import ViewOptions
from workbench.visualise.picture import Picture
from workbench.visualise.run import code_of
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent
from workbench.visualise.views import find_view

TYPES = {"f4": np.dtype("<f4"), "u2": np.dtype("<u2"), "u1": np.dtype("<u1")}


def decode_parcel(content: bytes) -> dict[str, Any]:
    """Decodes a parcel as the browser does: each layer's `values` are the numbers that its codes stand for."""
    (length,) = struct.unpack_from("<I", content)
    header: dict[str, Any] = json.loads(content[4 : 4 + length])
    begin = -(-(4 + length) // 8) * 8
    for layer in (layer for side in header["sides"] for layer in side["layers"]):
        array = layer["array"]
        codes = np.frombuffer(content, TYPES[array["type"]], int(np.prod(array["shape"])), begin + array["at"])
        values = codes.astype(np.float64)
        if array["type"] != "f4":
            most = np.iinfo(codes.dtype).max - 1
            values = array["low"] + (array["high"] - array["low"]) * (values / most) ** array["power"]
            values[codes == most + 1] = np.nan
        layer["values"] = values.reshape(array["shape"])
    return header


def image(values: np.ndarray, **changes: Any) -> Picture:
    arguments = {"x": Axis("seconds", "seconds"), "y": Axis("row"), "scale": Scale("value", 0.0, 1.0)} | changes
    return Picture("waveform", "m", "pytorch", "t", "s", (Layer("a", "image", "a", values, **arguments),), 1.0, WORDS)


@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=3, max_side=5), elements=st.floats(-1e6, 1e6, width=32)))
def test_image_values_survive_the_parcel_encoding(values: np.ndarray) -> None:
    values[..., 0, 0] = np.nan
    [layer] = decode_parcel(parcel([image(values)], ["side"]))["sides"][0]["layers"]
    known = values[np.isfinite(values)]
    step = (known.max() - known.min() if known.size else 0.0) / 65534
    np.testing.assert_allclose(layer["values"], values, rtol=1e-6, atol=0.51 * step + 1e-6)


def test_a_large_image_has_a_byte_for_each_value() -> None:
    values = np.linspace(0.0, 1.0, 4_000_001, dtype=np.float32)[None]
    [layer] = decode_parcel(parcel([image(values)], ["side"]))["sides"][0]["layers"]
    assert layer["array"]["type"] == "u1" and layer["array"]["power"] == 2.0
    assert abs(layer["values"] - values).max() < 1 / 254
    assert abs(layer["values"] - values)[values < 1e-4].max() < 5e-5, "more codes where most values of attention are"


def test_parcel_contains_every_kind_of_layer_with_axes_and_labels() -> None:
    picture, shifted = every_kind("pytorch"), every_kind("gguf", shift=50.0)
    both_sides = picture_set(picture, shifted)
    header = decode_parcel(parcel(both_sides.pictures, both_sides.titles))
    assert [side["title"] for side in header["sides"]] == ["Side 0", "Side 1", "Difference"]
    first = {layer["name"]: layer for layer in header["sides"][0]["layers"]}
    for layer in picture.layers:
        np.testing.assert_allclose(first[layer.name]["values"], layer.values, rtol=1e-6, atol=1e-3)
        assert first[layer.name]["labels"] == list(layer.labels)
    assert first["bands"]["x"]["time"] == [0.0, 0.04] and first["near"]["x"]["time"] is None
    assert first["cross"]["y"]["tokens"] == [0, 1, 2] and first["cross"]["y"]["spans"][1] == [0.75, 1.0]
    assert first["lens"]["y"]["tokens"] is None and first["edges"]["over"]
    equal = {layer["name"]: layer["equal"] for layer in header["sides"][2]["layers"]}
    assert equal == {"bands": False, "sums": True, "weights": True, "cross": True, "lens": True}
    assert NASTY in parcel(both_sides.pictures, both_sides.titles).decode("utf-8", "replace"), (
        "the parcel holds raw data, which scripts escape"
    )


@pytest.mark.parametrize(
    ("ticks", "tokens", "places"),
    [
        (("<|en|>", "▁two", "one"), ("two", "▁one"), [None, 0, 1]),
        (("say", "two", ":", "two"), ("two",), [None, None, None, 0]),
        (("two", "one"), ("one", "two"), None),
        ((), ("one",), None),
        (("one",), (), None),
    ],
)
def test_axis_ticks_are_matched_to_tokens_and_their_times(ticks: Any, tokens: Any, places: Any) -> None:
    words = tuple(Token(1, text, 0.5, 1.0) for text in tokens)
    axis = Axis("token", "tokens", ticks=ticks)
    layer = Layer("a", "image", "a", np.zeros((max(len(ticks), 1), 2)), Axis("seconds", "seconds"), axis)
    picture = Picture("ctc", "m", "pytorch", "t", "s", (layer,), 1.0, words)
    [decoded] = decode_parcel(parcel([picture], ["side"]))["sides"][0]["layers"]
    assert decoded["y"]["tokens"] == places
    if places is not None:
        assert decoded["y"]["spans"] == [None if place is None else [0.5, 1.0] for place in places]


# Requests.


def ask(
    pool: Any, *cells: str, view: str = "filterbank", recording: str | None = "a.wav", **options: Any
) -> run.Request:
    return run.request_of(pool.registry, cells, recording, "", view, options)


def test_invalid_view_request_raises_one_line_error(pool: Any) -> None:
    for make_request, sentence in (
        (lambda: ask(pool), "no model is chosen"),
        (lambda: ask(pool, "fake/none|pytorch"), "there is no 'fake/none'"),
        (lambda: ask(pool, "fake/sense|gguf"), "cannot run"),
        (lambda: ask(pool, "fake/sense|pytorch", "fake/sense|pytorch"), "both sides are Fake SenseVoice"),
        (lambda: ask(pool, "fake/para|pytorch", view="ctc"), "has no view CTC lattice: it has no CTC head"),
        (lambda: ask(pool, "fake/sense|pytorch", view="nothing"), "there is no view 'nothing'"),
        (lambda: ask(pool, "fake/sense|pytorch", recording=None), "there is no recording"),
        (lambda: ask(pool, "fake/sense|pytorch", view="attention", layer=-1), "layer"),
        (lambda: ask(pool, "fake/sense|pytorch", view="attention", stack="x"), "stack"),
    ):
        with pytest.raises(BadInput, match=sentence) as caught:
            make_request()
        assert "\n" not in str(caught.value)
    valid = ask(pool, "fake/sense|pytorch", layer=3, view="attention")
    assert valid.options.layer == 3 and ask(pool, "fake/sense|pytorch", layer=3).options.layer is None, (
        "this view has no layer option"
    )


def test_python_of_a_picture_names_the_recording_without_paths_of_the_server(pool: Any) -> None:
    upload = "/srv/uploads/0f3a/it's.wav"
    own = ask(pool, "fake/sense|pytorch", recording=upload)
    sample = run.request_of(pool.registry, ["fake/sense|pytorch"], upload, "", "ctc", {}, sample="one.wav")
    assert own.sources == sample.sources == (upload,)
    assert own.written == ("it's.wav",) and sample.written == ("assets/samples/one.wav",)
    session: Any = SimpleNamespace(model="fake/sense", runtime="pytorch", quantization=None)
    scene = Scene(session, own.offers[0].card, upload, written=own.written[0])
    code = code_of(scene, find_view("ctc"), ViewOptions())
    assert """visualise("it's.wav", model='fake/sense', """ in code and "/srv" not in code


def test_file_without_sound_is_refused_before_a_model_is_loaded(pool: Any, tmp_path: Path) -> None:
    view_request = ask(pool, "fake/sense|pytorch", recording=str(broken(tmp_path / "text.wav")))
    with pytest.raises(BadInput, match=r"^text\.wav is not a sound file"):
        run.compute(pool, run.Scenes(), view_request, threading.Event(), lambda _: None)
    assert pool.registry.opened == []


def test_a_stopped_run_ends_and_a_failed_one_raises(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    view_request, stop = ask(pool, "fake/sense|pytorch"), threading.Event()

    def wait(pool: Any, scenes: Any, request: Any, stop: threading.Event, tell: Any) -> run.PictureSet:
        tell("at work")
        assert stop.wait(60)
        raise BadInput("too late")

    monkeypatch.setattr(run, "compute", wait)
    steps = run.follow(pool, run.Scenes(), view_request, stop)
    assert next(steps).activity == "starting"
    stop.set()
    assert list(steps)[-1].stopped

    def fail(*_: Any) -> run.PictureSet:
        raise BadInput("the layer is missing")

    monkeypatch.setattr(run, "compute", fail)
    with pytest.raises(BadInput, match="the layer is missing"):
        list(run.follow(pool, run.Scenes(), view_request, threading.Event()))


def test_joint_layers_of_both_sides_are_separate_from_the_difference() -> None:
    left, right = every_kind("pytorch"), every_kind("gguf", shift=1.0)
    joint = ViewContent(
        "Alike", (Layer("both", "image", "both", np.ones((2, 2)), Axis("layer"), Axis("layer")),), notes=("n",)
    )
    pictures, titles = [left, right], ["a", "b"]
    run.add_together(pictures, titles, joint)
    run.add_difference(pictures, titles)
    assert titles == ["a", "b", run.BOTH, run.DIFFERENCE] and pictures[2].layers == joint.layers
    assert pictures[2].title == f"Alike: {left.side} and {right.side}" and pictures[2].notes == ("n",)
    assert "both" not in {layer.name for layer in pictures[3].layers} and "minus" in pictures[3].title
    no_arrays = [image(np.ones((2, 2))), image(np.ones((3, 2)))]
    titles = ["a", "b"]
    run.add_difference(no_arrays, titles)
    assert titles == ["a", "b"] and "have no difference that can be drawn" in no_arrays[1].notes[0]
    run.add_together(no_arrays, titles, joint)
    assert titles == ["a", "b", run.BOTH] and no_arrays[2].layers == joint.layers


def test_oldest_scenes_are_dropped_beyond_the_limit() -> None:
    scenes, objects = run.Scenes(), [object() for _ in range(run.MAX_SCENES + 1)]
    for place, item in enumerate(objects):
        assert scenes.scene(str(place), lambda item=item: item) is item  # type: ignore[misc]
    assert scenes.scene("1", object) is objects[1]  # type: ignore[arg-type]
    assert scenes.scene("0", lambda: None) is None  # type: ignore[arg-type,return-value]


# Events.


def restore(actions: VisualiseActions, **state: str) -> tuple[Any, ...]:
    return actions.restore(SimpleNamespace(_data=state))  # type: ignore[arg-type]


def test_link_state_is_validated(pool: Any, tmp_path: Path) -> None:
    actions = VisualiseActions(pool, read_samples(), OwnRecordings(RunStore(tmp_path)))
    state = {"a": "fake/sense|pytorch", "b": "fake/para|pytorch", "view": "attention", "layer": "2", "count": "5"}
    recording, _, name, left, right, view, *updates = restore(actions, sample="three_seven_one.wav", **state)
    assert Path(recording).name == name == "three_seven_one.wav" and view == "attention"
    assert (left["value"], right["value"]) == ("fake/sense|pytorch", "fake/para|pytorch")
    values = {field.spec.name: update["value"] for field, update in zip(actions.options, updates[4:])}
    assert values["layer"] == "2" and values["count"] == 5 and values["stack"] == "auto"
    for invalid_state, sentence in (
        ({"sample": "../../etc/passwd"}, "passwd"),
        ({"a": "/etc"}, "there is no '/etc' on 'pytorch' here"),
        ({"count": "many"}, "Count 'many'"),
        ({"attention": "tails"}, "the link says Attention 'tails'; expected one of heads, mean, rollout, token"),
    ):
        with pytest.raises(BadInput, match=sentence):
            restore(actions, **invalid_state)
    assert restore(actions, view="nothing")[5] == "filterbank", "a view of another version becomes the default view"


def test_names_of_the_browsers_state_in_a_link_are_no_options(pool: Any, tmp_path: Path) -> None:
    actions = VisualiseActions(pool, read_samples(), OwnRecordings(RunStore(tmp_path)))
    script = (assets() / "visualise" / "app.js").read_text()
    [names] = re.findall(r"VIEW_SETTINGS = \[(.*?)\]", script)
    of_browser = set(re.findall(r"\w+", names))
    assert "larger" in of_browser and not of_browser & {
        "a",
        "b",
        "view",
        "sample",
        "recording",
        "text",
        *(each.key for each in (*actions.options, *actions.model_options)),
    }


def test_pictures_are_available_by_key_until_replaced_or_the_user_leaves(
    pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "compute", lambda *_: picture_set(every_kind("pytorch")))
    actions, user = (
        VisualiseActions(pool, read_samples(), OwnRecordings(RunStore(tmp_path))),
        SimpleNamespace(session_hash="user"),
    )
    values = ["", "auto", "", "heads", "", 3, "", *(option.spec.default for option in actions.model_options)]

    def start_run() -> str:
        *_, last = actions.start(user, "a.wav", "", "", "fake/sense|pytorch", "", "waveform", *values)  # type: ignore[arg-type]
        return str(last[0]["key"])

    first = start_run()
    assert actions.find(first).titles == ("Side 0",)
    second = start_run()
    assert actions.find(first), "a slow browser still fetches these after the second press"
    third = start_run()
    with pytest.raises(BadInput, match="not kept any more"):
        actions.find(first)
    actions.leave(user)  # type: ignore[arg-type]
    for key in (second, third):
        with pytest.raises(BadInput, match="not kept any more"):
            actions.find(key)


def test_option_that_only_loses_the_focus_starts_no_run(
    pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "compute", lambda *_: picture_set(every_kind("pytorch")))
    actions = VisualiseActions(pool, read_samples(), OwnRecordings(RunStore(tmp_path)))
    user: Any = SimpleNamespace(session_hash="user")
    defaults = [option.spec.default for option in actions.model_options]

    def steps(stack: str) -> int:
        values = ["", stack, "", "heads", "", 3, "", *defaults]
        return len(list(actions.start_if_changed(user, "a.wav", "", "", "fake/sense|pytorch", "", "waveform", *values)))

    assert steps("auto") and not steps("auto") and steps("encoder") and steps("auto")
    actions.leave(user)
    assert steps("auto")


# The endpoint.


def test_the_endpoint_gives_pictures_as_files(pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compute(pool: Any, scenes: Any, request: run.Request, stop: Any, tell: Any) -> run.PictureSet:
        return picture_set(*[every_kind("pytorch"), every_kind("gguf", 1.0)][: len(request.offers)])

    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    monkeypatch.setattr(endpoint, "compute", compute)
    sound = str(tone(tmp_path / "a.wav"))
    left, right, difference = endpoint.pictures(pool, sound, "fake/sense", "waveform", beside="fake/para")
    assert [each["side"] for each in (left, right, difference)] == ["Side 0", "Side 1", "Difference"]
    assert left["tokens"][0] == {"text": "▁three", "start": 0.25, "end": 0.5} and "workbench.visualise" in left["code"]
    assert left["layers"][0] | {"shape": [40, 50]} == left["layers"][0]
    names = [each["file"]["orig_name"] for each in (left, right, difference)]
    sides = ["fake-sense-pytorch", "fake-sense-gguf"]
    assert names == [f"waveform-{each}.npz" for each in (*sides, f"difference-{'-'.join(sides)}")]
    with np.load(difference["file"]["path"], allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["bands"], np.ones((40, 50)))
    for invalid, sentence in (
        ({"format": "gif"}, "format is 'gif'"),
        ({"options": {"nothing": 1}}, "option"),
        ({"view": "ctd"}, "there is no view 'ctd'"),
    ):
        with pytest.raises(BadInput, match=sentence):
            endpoint.pictures(pool, sound, **{"model": "fake/sense", "view": "waveform", **invalid})


def test_model_options_are_passed_to_the_run_and_stored_in_the_link(
    pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    requests: list[run.Request] = []

    def compute(pool: Any, scenes: Any, request: run.Request, stop: Any, tell: Any) -> run.PictureSet:
        requests.append(request)
        return picture_set(every_kind("pytorch"))

    monkeypatch.setattr(run, "compute", compute)
    actions, user = (
        VisualiseActions(pool, read_samples(), OwnRecordings(RunStore(tmp_path))),
        SimpleNamespace(session_hash="user"),
    )
    names = [option.key for option in actions.model_options]
    assert {"language", "itn", "cmvn"} <= {option.spec.name for option in actions.model_options}
    assert not {"vad", "lm", "lexicon", "boost"} & set(names), (
        "these options change nothing in a picture of a full recording"
    )
    defaults = {option.key: option.spec.default for option in actions.model_options}
    option_values = {key: "\n".join(value) if isinstance(value, tuple) else value for key, value in defaults.items()}
    [language] = [key for key in names if key.split("-")[0] == "language"]
    [itn] = [key for key in names if key.split("-")[0] == "itn"]
    option_values |= {language: "en", itn: True}
    values = ["", "auto", "", "heads", "", 3, "", *option_values.values()]
    *_, last = actions.start(user, "a.wav", "", "", "fake/sense|pytorch", "", "waveform", *values)  # type: ignore[arg-type]
    assert requests[0].model_options == ({"language": "en", "itn": True},), (
        "options that the user did not change are absent"
    )
    state = last[0]["settings"]
    assert state[language] == "en" and state[itn] == "True" and "cmvn" not in state
    updates = restore(actions, **state)[10 + len(actions.options) :]
    fields = dict(zip(names, updates[1:], strict=True))
    assert (
        fields[language]["value"] == "en" and fields[itn]["value"] is True and fields["cmvn"]["value"] == "checkpoint"
    )
    *_, last = actions.start(user, "a.wav", "", "", "fake/para|pytorch", "", "waveform", *values)  # type: ignore[arg-type]
    assert requests[1].model_options == ({},) and language not in last[0]["settings"], (
        "another family does not have them"
    )
