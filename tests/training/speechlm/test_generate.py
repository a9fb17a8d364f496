"""The batched generator of the training, compared with the row-by-row generation of the session."""

from __future__ import annotations

import numpy as np

from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.registry.sources import assets
from workbench.training.speechlm.measure import Demo, requests, strings_to_say
from workbench.training.speechlm.voices import VOICES

DEMO = assets() / "demo-speechlm"
STRINGS = strings_to_say(40)[:20:2]  # of the shorter half


def test_batched_training_generator_gives_the_rows_of_the_session() -> None:
    """In float64, where no two ids are nearly equally likely."""
    dialogues = requests(STRINGS, VOICES[0])
    demo = Demo.read(DEMO)
    demo.network.double()
    batched = list(demo.say(dialogues))
    session = open_here(SessionSpec("demo/speechlm", "speechlm", "pytorch", DEMO, settings=Settings(dtype="float64")))
    for digits, [(_, text)], rows in zip(STRINGS, dialogues, batched, strict=True):
        answer = session.converse(text, modalities="audio", temperature=0, max_audio_rows=400)
        np.testing.assert_array_equal(rows, answer.streams, err_msg=f"said {digits}")
    session.close()
