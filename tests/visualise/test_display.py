"""The notebook display of a picture."""

from __future__ import annotations

import numpy as np

from tests.support.html_fragments import HOSTILE, checked, text_of
from workbench.plots.layers import Axis, Layer
from workbench.visualise.picture import Picture


def test_picture_display_shows_drawing_and_escaped_code() -> None:
    layer = Layer("weights", "bars", "Weights", np.linspace(0, 1, 5), Axis("row", "rows"), Axis("value"))
    found = Picture("cif", HOSTILE, HOSTILE, HOSTILE, HOSTILE, (layer,), 1.5, notes=(HOSTILE,), code=HOSTILE)
    assert len(list(checked(found._repr_html_()).iter("img"))) == 1
    said = text_of(found._repr_html_())
    assert said.count("alert(1)") >= 5 and "view cif" in said and "1.50 s" in said
