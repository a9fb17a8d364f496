"""Pictures of a recording in which Paraformer's predictor fires no token: what they lack is speech."""

from __future__ import annotations

import numpy as np
import pytest

from tests.visualise.conftest import SceneOf
from workbench.core.errors import BadInput
from workbench.visualise.options import ViewOptions
from workbench.visualise.run import picture_of
from workbench.visualise.scene import Scene


@pytest.fixture
def scene(scene_of: SceneOf) -> Scene:
    made = scene_of("demo/paraformer", fresh=True)
    made.source = (0.1 * np.sin(0.9 * np.arange(800)).astype(np.float32), 16000)  # of one row
    assert not len(made.stage("tokens"))
    return made


@pytest.mark.parametrize(
    ("view", "options"),
    [
        ("lens", {}),
        ("lens", {"stack": "decoder"}),
        ("confidence", {}),
        ("attention", {"stack": "cross"}),
        ("attention", {"attention": "token"}),
        ("gradient", {}),
    ],
)
def test_what_needs_a_token_says_that_there_is_none(scene: Scene, view: str, options: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=r"^demo/paraformer wrote no token; expected a recording of speech$"):
        picture_of(scene, view, ViewOptions(**options))  # type: ignore[arg-type]


def test_layers_of_one_row_have_no_similarity_and_a_note_says_so(scene: Scene) -> None:
    picture = picture_of(scene, "similarity")
    assert np.isnan(picture.layers[0].values).all()
    assert picture.notes == ("a layer has no similarity (NaN) where all its rows are equal",)
