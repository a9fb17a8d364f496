"""Real worker processes killed during an evaluation: each recording is computed once and results are unchanged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.evaluate_kills import check, kill_and_go_on, make_corpus, start
from workbench.evaluation import read, run

MODEL = "demo/sensevoice|gguf|q8_0"  # it loads in a moment
RECORDINGS = 60


@pytest.mark.slow
def test_repeatedly_killed_evaluation_gives_the_results_of_an_undisturbed_run(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "corpus", RECORDINGS)
    outcome = run(corpus, [MODEL], tmp_path / "quiet", workers=2)
    [model] = outcome.models
    assert (model.recordings, model.failed, outcome.computed) == (RECORDINGS, 0, RECORDINGS)
    assert model.wer is not None and model.wer < 0.2 and model.rtfx
    assert {each.measured["worker"] for each in read(tmp_path / "quiet").results()} <= {"local-1", "local-2"}
    kinds = ["full disk", "worker", "driver", "group"]
    met = kill_and_go_on(corpus, tmp_path / "killed", [MODEL], 1, kinds, random.Random(1))
    assert met["full disk"] == 1 and sum(met.values()) >= 2
    check(corpus, tmp_path / "quiet", tmp_path / "killed", 1)
    second_run = start(corpus, tmp_path / "killed", [MODEL], 2)
    second_run.communicate()
    assert second_run.returncode == 0, "nothing is left to do"
