"""Every demo recipe, from takes to a checkpoint that can be opened, with almost no training."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile

from tests.training.tones import tone_takes
from workbench.core.errors import BadInput
from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES, family_of
from workbench.isolation.loader import open_here
from workbench.registry.sources import assets
from workbench.training.data.digits import Take, load_fsdd
from workbench.training.demo import check_start, more_takes, recipe_of
from workbench.training.training_run import DemoOptions, TrainingRun

MEGABYTES = 12  # the largest size of a demo
PARAMETERS = 6_000_000
# The demo SpeechLM is larger and transcribes nothing; `speechlm/test_recipe.py` is its test.
TRAINABLE = [name for name, family in FAMILIES.items() if family.recipe and "transcribe" in family.tasks]


@pytest.mark.slow
@pytest.mark.parametrize("family", TRAINABLE)
def test_recipe_writes_a_checkpoint_that_opens_and_can_be_trained_further(family, tmp_path):
    messages = []
    options = DemoOptions(strings=60, workers=0, threads=1, updates_scale=1e-3)
    takes = [*tone_takes("a", "b"), *tone_takes("c", human=False)]
    run = TrainingRun(options, takes, tmp_path / "cache", messages.append)
    recipe = recipe_of(family)
    out = tmp_path / "demo"
    out.mkdir()
    parameters = recipe.write(recipe.train(run), out)

    assert 0 < parameters <= PARAMETERS
    assert sum(path.stat().st_size for path in out.rglob("*")) <= MEGABYTES * 1_000_000
    assert run.phases and all(phase.training.updates >= 1 for phase in run.phases)
    assert family_of(out).name == family
    session = open_here(SessionSpec("demo", family, "pytorch", out))
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    assert session.transcribe((samples, 16_000)).audio_seconds == pytest.approx(1.0)

    takes.append(Take("d", (), samples, 16_000))
    run = TrainingRun(replace(options, strings=12), takes, tmp_path / "cache", messages.append)
    further = tmp_path / "further"
    further.mkdir()
    (out / "README.md").write_text("# a card\n")
    assert recipe.write(check_start(family, recipe, out)(run, out), further) == parameters
    (out / "README.md").unlink()
    assert {path.relative_to(further) for path in further.rglob("*")} == {
        path.relative_to(out) for path in out.rglob("*")
    }
    for name in ("am.mvn", "cmvn.ark", "cmvn.txt"):  # the features are normalised as before
        if (out / name).exists():
            assert (further / name).read_bytes() == (out / name).read_bytes()
    session = open_here(SessionSpec("further", family, "pytorch", further))
    assert session.transcribe((samples, 16_000)).audio_seconds == pytest.approx(1.0)


def test_held_out_speaker_among_additional_speakers_is_refused(tmp_path):
    for speaker in ("alan", "zoe"):
        soundfile.write(tmp_path / f"3_{speaker}_0.wav", np.full(800, 0.1), 8000)
    held_out = load_fsdd(tmp_path)[-1:]
    with pytest.raises(BadInput, match="has recordings of zoe, who is never trained on"):
        more_takes(tmp_path, held_out)
    (tmp_path / "3_zoe_0.wav").unlink()
    assert [take.speaker for take in more_takes(tmp_path, held_out)] == ["alan"]


def test_further_training_from_a_checkpoint_of_another_family_is_refused(tmp_path):
    recipe = recipe_of("paraformer")
    with pytest.raises(BadInput, match="is not a checkpoint directory of paraformer"):
        check_start("paraformer", recipe, assets() / "demo-sensevoice")
    with pytest.raises(BadInput, match="is not a checkpoint directory of paraformer"):
        check_start("paraformer", recipe, tmp_path / "missing")
    with pytest.raises(BadInput, match="the demo of speechlm cannot be trained further"):
        check_start("speechlm", recipe_of("speechlm"), assets() / "demo-speechlm")
