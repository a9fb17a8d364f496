"""All views on all demo models: availability, drawing without warnings, and content."""

from __future__ import annotations

import io
import json
import time
import warnings
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from tests.visualise.conftest import SceneOf
from workbench.core.errors import BadInput
from workbench.families import FAMILIES
from workbench.pipelines.recognition.fireredasr import FireRedAudioEncoder
from workbench.registry.registry import Registry
from workbench.runtimes.pytorch.language_models.speechlm_network import SpeechLmNetwork
from workbench.visualise.options import ViewOptions
from workbench.visualise.picture import Picture
from workbench.visualise.run import picture_of
from workbench.visualise.views import VIEWS, available, find_view

GRADIENT = {"gradient"}
SOUND, LANGUAGE = {"waveform", "filterbank"}, {"attention", "similarity", "lens", "confidence", "quantisation"}
HAVE = {
    "demo/sensevoice": SOUND | LANGUAGE | GRADIENT | {"ctc", "fsmn"},
    "demo/paraformer": SOUND | LANGUAGE | GRADIENT | {"cif", "fsmn"},
    "demo/funasr-nano": SOUND | LANGUAGE | GRADIENT | {"fsmn", "embeddings"},
    "demo/fireredasr": SOUND | LANGUAGE | GRADIENT | {"embeddings"},
    "demo/speechlm": SOUND | LANGUAGE | {"codec"},
    "demo/qwen3": LANGUAGE | {"embeddings"},
}
LONG = {(model, "quantisation") for model in HAVE} - {
    ("demo/paraformer", "quantisation"),
    ("demo/qwen3", "quantisation"),
}
"""Cases that open and convert one more model each; two of them stand for all."""
CASES = [(model, view) for model, views in HAVE.items() for view in sorted(views) if (model, view) not in LONG]
SLOWEST_SECONDS = 10.0  # of the processor, with the session open; under 3 on a machine without other work
LARGEST = 3_000_000  # bytes of a file
OPTIONS = {"quantisation": ViewOptions(types=("q8_0",))}


@pytest.mark.parametrize("model", HAVE)
def test_model_offers_its_views_and_other_views_raise_an_error_with_the_reason(
    model: str, registry: Registry, scene_of: SceneOf
) -> None:
    found = available(registry, model, "pytorch")
    assert set(found) == set(VIEWS) and {name for name, reason in found.items() if not reason} == HAVE[model]
    for name, reason in found.items():
        if reason:
            with pytest.raises(BadInput, match=f"{model} on pytorch has no view {name}: {reason}"):
                picture_of(scene_of(model), name)


@pytest.mark.slow  # all together
@pytest.mark.parametrize(("model", "view"), CASES)
def test_every_available_view_is_drawn_without_warnings(model: str, view: str, scene_of: SceneOf) -> None:
    scene = scene_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("default", ResourceWarning)  # of files that other rooms leave to the collector
        begun = time.process_time()
        picture = picture_of(scene, view, OPTIONS.get(view, ViewOptions()))
        assert time.process_time() - begun < SLOWEST_SECONDS or view == "quantisation"
        check_picture(picture)
        check_files(picture)


def check_picture(picture: Picture) -> None:
    names = [layer.name for layer in picture.layers]
    assert names and len(set(names)) == len(names) and not picture.layers[0].over
    for layer in picture.layers:
        assert layer.title and np.isfinite(layer.values).any(), layer.name
        if layer.kind == "table":
            assert len(layer.labels) == layer.values.size
        if layer.y.ticks and layer.kind in ("image", "table"):
            assert len(layer.y.ticks) == layer.values.shape[-2]
        if layer.x.ticks and layer.cells:
            assert len(layer.x.ticks) == layer.cells
        if layer.x.unit == "seconds" and layer.cells and picture.seconds:
            assert layer.x.start <= 0 and 0.5 * picture.seconds < layer.x.end(layer.cells) < 2 * picture.seconds + 2


def check_files(picture: Picture) -> None:
    png, svg, numbers = (picture.render(kind) for kind in ("png", "svg", "npz"))
    assert png.startswith(b"\x89PNG\r\n") and max(map(len, (png, svg, numbers))) < LARGEST
    root = ET.fromstring(svg)
    written = "".join(root.itertext())
    assert picture.title in written and picture.model in written, "text stays text"
    with np.load(io.BytesIO(numbers), allow_pickle=False) as arrays:
        for layer in picture.layers:
            np.testing.assert_array_equal(arrays[layer.name], layer.values)
            if layer.cells:
                assert len(arrays[f"{layer.name}.x"]) == layer.cells
        described = json.loads(str(arrays["metadata"]))
    assert described["view"] == picture.view and described["code"] == picture.code
    assert described["layers"].keys() == {layer.name for layer in picture.layers}


def test_every_view_has_a_description_and_refers_to_existing_families() -> None:
    for view in VIEWS.values():
        assert view.sentence.endswith(".") and view.label
        assert set(view.absent) <= set(FAMILIES) and set(view.options) <= set(ViewOptions.__dataclass_fields__)
        assert not set(view.options) & {
            name for f in FAMILIES.values() for name in f.options_class.__dataclass_fields__
        }


def test_an_unknown_view_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadInput, match=r"there is no view 'atention'; did you mean attention\?"):
        find_view("atention")
    with pytest.raises(BadInput, match="expected one of waveform, filterbank"):
        find_view("zzz")


@pytest.mark.parametrize(
    ("model", "view"),
    [
        ("demo/fireredasr", "lens"),
        ("demo/fireredasr", "confidence"),
        ("demo/fireredasr", "gradient"),
        ("demo/speechlm", "lens"),
        ("demo/speechlm", "confidence"),
    ],
)
def test_view_of_a_model_that_hears_encodes_the_sound_once_for_its_stages(
    model: str, view: str, scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, heard = scene_of(model, fresh=True), []
    encoder, method = {
        "demo/fireredasr": (FireRedAudioEncoder, "embeddings"),
        "demo/speechlm": (SpeechLmNetwork, "embed_audio"),
    }[model]
    encode = getattr(encoder, method)

    def counted(*arguments: Any) -> Any:
        heard.append(arguments)
        return encode(*arguments)

    monkeypatch.setattr(encoder, method, counted)
    picture_of(scene, view)
    assert len(heard) == 1 + scene.transcribes  # a transcript encodes it again
