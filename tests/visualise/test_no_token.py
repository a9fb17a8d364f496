"""Views of a recording for which Paraformer's predictor produces no token."""

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
def test_view_that_needs_a_token_raises_an_error_without_tokens(
    scene: Scene, view: str, options: dict[str, str]
) -> None:
    with pytest.raises(BadInput, match=r"^demo/paraformer wrote no token; expected a recording of speech$"):
        picture_of(scene, view, ViewOptions(**options))  # type: ignore[arg-type]


def test_similarity_of_single_row_layers_is_nan_with_a_note(scene: Scene) -> None:
    picture = picture_of(scene, "similarity")
    assert np.isnan(picture.layers[0].values).all()
    assert picture.notes == ("a layer has no similarity (NaN) where all its rows are equal",)
