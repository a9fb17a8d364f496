"""The CIF view of a BiCif model, whose second predictor head gives the token times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.pipelines.recognition.test_paraformer import SAMPLES, FakeNetwork
from tests.support.tiny_checkpoints import tiny_paraformer
from workbench.families.sanm.paraformer import read_paraformer
from workbench.pipelines.recognition.paraformer import Decoded, ParaformerPipeline
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.trace.recorder import Recorder
from workbench.visualise.builders.cif import cif
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene


class Recorded(FakeNetwork):
    """Records its weights, as the networks of the runtimes do."""

    def decode(self, features: np.ndarray, recorder: Recorder | None, *network_inputs: Any) -> Decoded:
        found = super().decode(features, recorder, *network_inputs)
        if recorder is not None:
            recorder.put("predictor.alphas", found.alphas)
        return found


def test_bicif_view_borders_equal_the_token_times_of_the_transcript(tmp_path: Path) -> None:
    plain = read_paraformer(tiny_paraformer(tmp_path))
    model = replace(plain, predictor=replace(plain.predictor, upsample=3))
    network = Recorded(model, ["one", "two", "</s>"])
    session: Any = SpeechSession("tiny", "pytorch", ParaformerPipeline(model, None, network))
    card: Any = SimpleNamespace(id="tiny", family="paraformer")
    drawn = cif(Scene(session, card, (SAMPLES, 16_000)), ViewOptions())
    layers = {layer.name: layer for layer in drawn.layers}
    times = [(token.start, token.end) for token in drawn.tokens]
    assert [token.text for token in drawn.tokens] == ["one", "two"]
    np.testing.assert_array_equal(layers["borders"].values, times)
    np.testing.assert_array_equal(layers["fine_fires"].values[:2], [start for start, _ in times])
    assert layers["fine_weights"].x.step == layers["weights"].x.step / 3 and layers["fine_weights"].cells == 51
