"""The demo SpeechLM recipe, from takes to a checkpoint that can be opened, with almost no training."""

import numpy as np
import pytest

from tests.training.tones import tone_takes
from workbench.core.settings import SessionSpec
from workbench.families import family_of
from workbench.isolation.loader import open_here
from workbench.training.data.digits import Take
from workbench.training.speechlm import recipe, voices
from workbench.training.speechlm.voices import HUMAN
from workbench.training.training_run import DemoOptions, TrainingRun

MEGABYTES = 40  # the largest size of the demo


def takes_of_the_voices():
    """Returns tones as takes of the demo's human voices, with the take numbers that the demo uses."""
    for name, numbers in HUMAN.items():
        for take in tone_takes(name):
            if take.number == 0:
                yield Take(name, take.digits, take.samples, take.sample_rate, True, numbers[take.digit])


@pytest.mark.slow
def test_speechlm_recipe_writes_a_checkpoint_that_answers_conversations(tmp_path, monkeypatch):
    def fake_speech(setting, digits, ending=""):  # without flite
        samples = np.sin(np.arange(4000) * (0.02 + 0.01 * digits[0])).astype(np.float32)
        return samples, 16_000

    monkeypatch.setattr(voices, "speak", fake_speech)
    lines = []
    options = DemoOptions(strings=60, workers=0, threads=1, updates_scale=1e-3)
    takes = [*takes_of_the_voices(), *tone_takes("a"), *tone_takes("c", human=False)]
    run = TrainingRun(options, takes, tmp_path / "cache", lines.append)
    out = tmp_path / "demo"
    out.mkdir()
    recipe.write(recipe.train(run), out)

    files = [path for path in out.rglob("*") if path.is_file()]
    assert all(path.stat().st_size < 10_000_000 for path in files)
    assert sum(path.stat().st_size for path in files) < MEGABYTES * 1_000_000
    assert len(run.phases) == 2 + len(recipe.LANGUAGE_PHASES)
    assert family_of(out).name == "speechlm"
    session = open_here(SessionSpec("demo", "speechlm", "pytorch", out))
    messages = [{"role": "user", "content": "say three"}]
    answer = session.converse(
        messages, modalities="text_audio", max_text_tokens=3, min_audio_rows=10, max_audio_rows=12
    )
    assert 10 <= len(answer.streams) <= 12
    assert answer.audio.dtype == np.float32
