"""The steps of a beam search on PyTorch and llama.cpp: every hypothesis, the choices, and planted faults."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.support.faults_in_beams import (
    cache_not_reordered,
    coarse_scores,
    no_length_penalty,
    other_ties,
    wrong_parents,
)
from tests.support.tiny_gguf import tiny_gguf
from workbench.compare import compare, judge, noise_or_bug
from workbench.core.errors import BadInput
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.decoding.generation import Decoding
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.llama_cpp.language import open_language
from workbench.runtimes.pytorch.language_models.language import LanguageModel as TorchModel
from workbench.trace.ancestry import Ancestry
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter, Trace

PROMPT = [5, 300, 17, 17, 290, 8, 44, 91, 300, 2]
BEAMS = 3
INSIDE, CACHES = "*,llm.layers.*.*", "*,llm.layers.*.cache.*"
STOPS = tuple(range(40))
RUNTIMES = ("pytorch", "gguf")


class BeamSearchCase(NamedTuple):
    """A tiny model on both runtimes, and the traces of its beam search on PyTorch in float32 and float64."""

    models: dict[str, Any]
    decoding: Decoding
    ancestry: Ancestry
    reference: Trace
    exact: Trace


def trace_beams(
    language: Any,
    ancestry: Ancestry,
    decoding: Decoding,
    dtype: str = "float32",
    stages: str = CACHES,
    **limits: Any,
) -> Trace:
    forced = ForcedBeamSearch(ancestry, range(1, ancestry.passes + 2), StageFilter(stages), **limits)
    forced.begin(decoding)
    language.follow_beams(language.prompt([PROMPT]), forced)
    return Trace(forced.recorder.stages, {"dtype": dtype, "input_digest": "a", **forced.meta()})


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> BeamSearchCase:
    path = tmp_path_factory.mktemp("beams") / "tiny.gguf"
    network = tiny_gguf(path, "qwen3").float()
    file = read_gguf(path)
    cpp = open_language(file, language_config(file), threads=1)
    torch_model = TorchModel(network, cpp.config, torch.device("cpu"))
    decoding = Decoding(STOPS, max_new_tokens=5, beam_size=BEAMS, length_penalty=1.0)
    ancestry = torch_model.ancestry(torch_model.prompt([PROMPT]), decoding)
    reference = trace_beams(torch_model, ancestry, decoding)
    exact = trace_beams(TorchModel(network.double(), cpp.config, torch.device("cpu")), ancestry, decoding, "float64")
    network.float()
    return BeamSearchCase({"pytorch": torch_model, "gguf": cpp}, decoding, ancestry, reference, exact)


def hypotheses(ancestry: Ancestry) -> list[list[list[int]]]:
    """The tokens of every hypothesis of every step."""
    steps: list[list[list[int]]] = [[[]] * ancestry.beams]
    for parents, tokens in zip(ancestry.parents, ancestry.tokens, strict=True):
        steps.append([[*steps[-1][parent], token] for parent, token in zip(parents, tokens, strict=True)])
    return steps


def test_example_search_reorders_hypotheses_and_ends_some_early(search: BeamSearchCase) -> None:
    """Hypotheses change places, and some end before the last step."""
    assert search.ancestry.passes >= 4
    assert any(parents != tuple(range(BEAMS)) for parents in search.ancestry.parents[1:])
    assert any(stage.endswith("finished") for stage in search.reference)


def test_step_stages_of_each_hypothesis_equal_a_full_pass_over_its_tokens(search: BeamSearchCase) -> None:
    language = search.models["pytorch"]
    reference = trace_beams(language, search.ancestry, search.decoding, stages=INSIDE)
    for step in (1, search.ancestry.passes):
        for beam, ids in enumerate(hypotheses(search.ancestry)[step]):
            recorder = Recorder(StageFilter(INSIDE))
            language.trace(language.prompt([[*PROMPT, *ids]]), recorder)
            for stage, values in recorder.stages.items():
                actual = reference[f"steps.{step}.beams.{beam}.{stage}"]
                expected = values[:, -1:] if stage.endswith("weights") else values[-1:]
                np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4, err_msg=f"{step} {beam} {stage}")
            cache_keys = reference[f"steps.{step}.beams.{beam}.llm.layers.1.cache.key"]
            expected = recorder.stages["llm.layers.1.attention.key_rope"]
            np.testing.assert_allclose(cache_keys, expected, rtol=1e-3, atol=1e-4)


def test_traced_parents_and_tokens_equal_the_transformers_search(search: BeamSearchCase) -> None:
    """Parents and tokens come from transformers' search, scores from the logits of the traced steps."""
    for step, (parents, tokens) in enumerate(zip(search.ancestry.parents, search.ancestry.tokens, strict=True), 1):
        assert search.reference[f"steps.{step}.beams.parents"].tolist() == list(parents)
        assert search.reference[f"steps.{step}.beams.tokens"].tolist() == list(tokens)
    last = search.ancestry.passes + 1
    assert not len(search.reference[f"steps.{last}.beams.parents"])
    assert (np.diff(search.reference[f"steps.{last}.beams.scores"]) <= 0).all()


def test_llama_cpp_search_and_trace_agree_with_pytorch(search: BeamSearchCase) -> None:
    language = search.models["gguf"]
    assert language.ancestry(language.prompt([PROMPT]), search.decoding) == search.ancestry
    candidate = trace_beams(language, search.ancestry, search.decoding)
    verdict = judge(compare(search.reference, candidate), noise_or_bug(search.reference, candidate, search.exact))
    assert set(candidate) == set(search.reference)
    assert verdict.within and f"Steps 1 to {search.ancestry.passes + 1} are within" in verdict.sentence


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    ("plant", "explanation"),
    [
        (cache_not_reordered, "the cache was not reordered"),
        (wrong_parents, "the cache was reordered by "),
    ],
    ids=["not reordered", "other parents"],
)
def test_verdict_names_step_beam_and_stage_of_a_kv_cache_in_wrong_order(
    search: BeamSearchCase, runtime: str, plant: Callable[[str], Any], explanation: str
) -> None:
    with plant(runtime):
        faulty = trace_beams(search.models[runtime], search.ancestry, search.decoding)
    order = None if plant is wrong_parents else list(range(BEAMS))
    step, beam = next(
        (step, beam)
        for step, parents in enumerate(search.ancestry.parents, 1)
        for beam, parent in enumerate(parents)
        if step > 1 and parent != (order or parents[::-1])[beam]
    )
    verdict = judge(compare(search.reference, faulty), noise_or_bug(search.reference, faulty, search.exact))
    assert verdict.faulty_stage == f"steps.{step}.beams.{beam}.llm.layers.0.cache.key", verdict.sentence
    assert f"The candidate first differs at step {step}, in beam {beam}, llm.layers.0.cache.key" in verdict.sentence
    assert explanation in verdict.sentence
    outer = compare(search.reference, faulty, stages="steps.*.llm.layers.?,steps.*.beams.?.llm.layers.?")
    assert judge(outer).faulty_stage == f"steps.{step}.beams.{beam}.llm.layers.0"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_missing_length_penalty_is_named_where_the_first_hypothesis_ends(
    search: BeamSearchCase, runtime: str
) -> None:
    with no_length_penalty(runtime):
        faulty = trace_beams(search.models[runtime], search.ancestry, search.decoding)
    step = next(n for n in range(1, 9) if f"steps.{n}.beams.finished" in search.reference and n > 1)
    verdict = judge(compare(search.reference, faulty), noise_or_bug(search.reference, faulty, search.exact))
    assert verdict.faulty_stage == f"steps.{step}.beams.finished", verdict.sentence
    assert "the length penalty is left out" in verdict.sentence


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_verdict_names_another_tie_break_rule_and_accepts_rounding(search: BeamSearchCase, runtime: str) -> None:
    language = search.models[runtime]
    with coarse_scores():
        reference, candidate = (
            trace_beams(model, search.ancestry, search.decoding) for model in (search.models["pytorch"], language)
        )
        with other_ties(runtime):
            faulty = trace_beams(language, search.ancestry, search.decoding)
    assert judge(compare(reference, candidate)).within
    verdict = judge(compare(reference, faulty))
    step = next(
        n
        for n in range(1, search.ancestry.passes + 1)
        if any(
            not np.array_equal(reference[f"steps.{n}.beams.{part}"], faulty[f"steps.{n}.beams.{part}"])
            for part in ("parents", "tokens")
        )
    )
    assert verdict.faulty_stage in (f"steps.{step}.beams.parents", f"steps.{step}.beams.tokens"), verdict.sentence
    assert "the tie is broken in another way" in verdict.sentence
    assert f"The candidate first differs at step {step}, in the choice of its hypotheses" in verdict.sentence


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_isolated_steps_show_a_kv_cache_fault_only_in_layers(search: BeamSearchCase, runtime: str) -> None:
    """Isolated steps show a fault in the order of the caches in layers only, and in no later stage."""
    language = search.models[runtime]
    with contextlib.ExitStack() as stack:
        candidate = trace_beams(language, search.ancestry, search.decoding, given=search.reference, stages=INSIDE)
        stack.enter_context(cache_not_reordered(runtime))
        faulty = trace_beams(language, search.ancestry, search.decoding, given=search.reference)
    assert judge(compare(search.reference, candidate)).within
    failing = [comparison.stage for comparison in compare(search.reference, faulty).stages if not comparison.passes]
    assert failing and all(".layers." in stage for stage in failing), failing


def test_wrong_beam_size_or_too_large_step_trace_raises_one_line_error(search: BeamSearchCase) -> None:
    with pytest.raises(BadInput, match=r"^the steps to follow are those of 3 beams, and beam_size is 2; expected"):
        trace_beams(search.models["pytorch"], search.ancestry, Decoding((), 6, beam_size=2))
    with pytest.raises(BadInput, match="decoding steps with these stages would take"):
        trace_beams(search.models["gguf"], search.ancestry, search.decoding, max_bytes=40_000)
