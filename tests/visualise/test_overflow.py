"""Views of a model whose values overflow: they show the available data and state why there are no tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.runtimes.test_not_finite import plant
from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.core.errors import NotFinite
from workbench.registry.registry import Registry
from workbench.visualise.run import picture_of
from workbench.visualise.scene import Scene


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Over a session in a process of its own, so that its error comes from there."""
    directory = tiny_sensevoice(tmp_path_factory.mktemp("overflow") / "it")
    plant(directory)
    with Registry() as registry:
        card = registry.card(str(directory))
        with registry.open(card, "pytorch", threads=1) as session:
            yield Scene(session, card, noise(2.0), registry=registry)


@pytest.mark.parametrize("view", ["ctc", "lens", "gradient"])
def test_token_views_raise_an_error_for_nan_logits(scene: Scene, view: str) -> None:
    with pytest.raises(NotFinite, match="logits are NaN: values overflow"):
        picture_of(scene, view)


def test_views_without_tokens_are_drawn_with_a_note_about_nan_logits(scene: Scene) -> None:
    for view in ("waveform", "filterbank", "attention"):
        picture = picture_of(scene, view)
        assert picture.layers and not picture.tokens
        assert picture.notes[-1].startswith("the network's logits are NaN")
    picture = picture_of(scene, "fsmn")
    assert np.isnan(picture.layers[0].values).all()
    assert "the kernels are not drawn: the memory has values that are not finite" in picture.notes
