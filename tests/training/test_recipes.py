"""Every demo recipe from takes to a checkpoint that opens, with next to no training."""

import numpy as np
import pytest

from tests.training.tones import tone_takes
from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES, family_of
from workbench.isolation.loader import open_here
from workbench.training.course import Course, DemoOptions
from workbench.training.demo import recipe_of

MEGABYTES = 12  # what a demo may weigh
PARAMETERS = 6_000_000
# The demo SpeechLM is larger and transcribes nothing; test_speechlm_recipe is its test.
TRAINABLE = [name for name, family in FAMILIES.items() if family.recipe and "transcribe" in family.tasks]


@pytest.mark.slow
@pytest.mark.parametrize("family", TRAINABLE)
def test_a_recipe_writes_a_checkpoint_that_opens(family, tmp_path):
    said = []
    options = DemoOptions(strings=60, workers=0, threads=1, updates_scale=1e-3)
    course = Course(options, [*tone_takes("a", "b"), *tone_takes("c", human=False)], tmp_path / "cache", said.append)
    recipe = recipe_of(family)
    out = tmp_path / "demo"
    out.mkdir()
    parameters = recipe.write(recipe.teach(course), out)

    assert 0 < parameters <= PARAMETERS
    assert sum(path.stat().st_size for path in out.rglob("*")) <= MEGABYTES * 1_000_000
    assert course.phases and all(phase.training.updates >= 1 for phase in course.phases)
    assert family_of(out).name == family
    session = open_here(SessionSpec("demo", family, "pytorch", out))
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    assert session.transcribe((samples, 16_000)).audio_seconds == pytest.approx(1.0)
