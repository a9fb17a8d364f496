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
from workbench.runtimes.pytorch.language import LanguageModel as TorchModel
from workbench.trace.ancestry import Ancestry
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter, Trace

PROMPT = [5, 300, 17, 17, 290, 8, 44, 91, 300, 2]
BEAMS = 3
INSIDE, CACHES = "*,llm.layers.*.*", "*,llm.layers.*.cache.*"
STOPS = tuple(range(40))
RUNTIMES = ("pytorch", "gguf")


class Sides(NamedTuple):
    """A tiny model on both runtimes and in float64, and its own search on PyTorch."""

    models: dict[str, Any]
    decoding: Decoding
    ancestry: Ancestry
    reference: Trace
    exact: Trace


def walked(
    language: Any,
    ancestry: Ancestry,
    decoding: Decoding,
    dtype: str = "float32",
    stages: str = CACHES,
    **more: Any,
) -> Trace:
    forced = ForcedBeamSearch(ancestry, range(1, ancestry.passes + 2), StageFilter(stages), **more)
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
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    path = tmp_path_factory.mktemp("beams") / "tiny.gguf"
    network = tiny_gguf(path, "qwen3").float()
    file = read_gguf(path)
    cpp = open_language(file, language_config(file), threads=1)
    torch_model = TorchModel(network, cpp.config, torch.device("cpu"))
    decoding = Decoding(STOPS, max_new_tokens=5, beam_size=BEAMS, length_penalty=1.0)
    ancestry = torch_model.ancestry(torch_model.prompt([PROMPT]), decoding)
    reference = walked(torch_model, ancestry, decoding)
    exact = walked(TorchModel(network.double(), cpp.config, torch.device("cpu")), ancestry, decoding, "float64")
    network.float()
    return Sides({"pytorch": torch_model, "gguf": cpp}, decoding, ancestry, reference, exact)


def hypotheses(ancestry: Ancestry) -> list[list[list[int]]]:
    """The tokens of every hypothesis of every step."""
    found: list[list[list[int]]] = [[[]] * ancestry.beams]
    for parents, tokens in zip(ancestry.parents, ancestry.tokens, strict=True):
        found.append([[*found[-1][parent], token] for parent, token in zip(parents, tokens, strict=True)])
    return found


def test_example_search_reorders_hypotheses_and_ends_some_early(sides: Sides) -> None:
    """Hypotheses change their places, and some end before the last step."""
    assert sides.ancestry.passes >= 4
    assert any(parents != tuple(range(BEAMS)) for parents in sides.ancestry.parents[1:])
    assert any(stage.endswith("finished") for stage in sides.reference)


def test_step_stages_of_each_hypothesis_equal_a_full_pass_over_its_tokens(sides: Sides) -> None:
    language = sides.models["pytorch"]
    reference = walked(language, sides.ancestry, sides.decoding, stages=INSIDE)
    for step in (1, sides.ancestry.passes):
        for beam, ids in enumerate(hypotheses(sides.ancestry)[step]):
            recorder = Recorder(StageFilter(INSIDE))
            language.trace(language.prompt([[*PROMPT, *ids]]), recorder)
            for stage, whole in recorder.stages.items():
                found = reference[f"steps.{step}.beams.{beam}.{stage}"]
                expected = whole[:, -1:] if stage.endswith("weights") else whole[-1:]
                np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=f"{step} {beam} {stage}")
            held = reference[f"steps.{step}.beams.{beam}.llm.layers.1.cache.key"]
            expected = recorder.stages["llm.layers.1.attention.key_rope"]
            np.testing.assert_allclose(held, expected, rtol=1e-3, atol=1e-4)


def test_traced_parents_and_tokens_equal_the_transformers_search(sides: Sides) -> None:
    """The hypotheses come from transformers' search, the choices beside them from the logits of these steps."""
    for step, (parents, tokens) in enumerate(zip(sides.ancestry.parents, sides.ancestry.tokens, strict=True), 1):
        assert sides.reference[f"steps.{step}.beams.parents"].tolist() == list(parents)
        assert sides.reference[f"steps.{step}.beams.tokens"].tolist() == list(tokens)
    last = sides.ancestry.passes + 1
    assert not len(sides.reference[f"steps.{last}.beams.parents"])
    assert (np.diff(sides.reference[f"steps.{last}.beams.scores"]) <= 0).all()


def test_llama_cpp_search_and_trace_agree_with_pytorch(sides: Sides) -> None:
    language = sides.models["gguf"]
    assert language.ancestry(language.prompt([PROMPT]), sides.decoding) == sides.ancestry
    found = walked(language, sides.ancestry, sides.decoding)
    verdict = judge(compare(sides.reference, found), noise_or_bug(sides.reference, found, sides.exact))
    assert set(found) == set(sides.reference)
    assert verdict.within and f"Steps 1 to {sides.ancestry.passes + 1} are within" in verdict.sentence


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (cache_not_reordered, "the cache was not reordered"),
        (wrong_parents, "the cache was reordered by "),
    ],
    ids=["not reordered", "other parents"],
)
def test_verdict_names_step_beam_and_stage_of_a_kv_cache_in_wrong_order(
    sides: Sides, runtime: str, plant: Callable[[str], Any], said: str
) -> None:
    with plant(runtime):
        off = walked(sides.models[runtime], sides.ancestry, sides.decoding)
    order = None if plant is wrong_parents else list(range(BEAMS))
    step, beam = next(
        (step, beam)
        for step, parents in enumerate(sides.ancestry.parents, 1)
        for beam, parent in enumerate(parents)
        if step > 1 and parent != (order or parents[::-1])[beam]
    )
    verdict = judge(compare(sides.reference, off), noise_or_bug(sides.reference, off, sides.exact))
    assert verdict.faulty_stage == f"steps.{step}.beams.{beam}.llm.layers.0.cache.key", verdict.sentence
    assert f"The candidate first differs at step {step}, in beam {beam}, llm.layers.0.cache.key" in verdict.sentence
    assert said in verdict.sentence
    whole = compare(sides.reference, off, stages="steps.*.llm.layers.?,steps.*.beams.?.llm.layers.?")
    assert judge(whole).faulty_stage == f"steps.{step}.beams.{beam}.llm.layers.0"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_missing_length_penalty_is_named_where_the_first_hypothesis_ends(sides: Sides, runtime: str) -> None:
    with no_length_penalty(runtime):
        off = walked(sides.models[runtime], sides.ancestry, sides.decoding)
    step = next(n for n in range(1, 9) if f"steps.{n}.beams.finished" in sides.reference and n > 1)
    verdict = judge(compare(sides.reference, off), noise_or_bug(sides.reference, off, sides.exact))
    assert verdict.faulty_stage == f"steps.{step}.beams.finished", verdict.sentence
    assert "the length penalty is left out" in verdict.sentence


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_verdict_names_another_tie_break_rule_and_accepts_rounding(sides: Sides, runtime: str) -> None:
    language = sides.models[runtime]
    with coarse_scores():
        mine, again = (walked(model, sides.ancestry, sides.decoding) for model in (sides.models["pytorch"], language))
        with other_ties(runtime):
            off = walked(language, sides.ancestry, sides.decoding)
    assert judge(compare(mine, again)).within
    verdict = judge(compare(mine, off))
    step = next(
        n
        for n in range(1, sides.ancestry.passes + 1)
        if any(
            not np.array_equal(mine[f"steps.{n}.beams.{of}"], off[f"steps.{n}.beams.{of}"])
            for of in ("parents", "tokens")
        )
    )
    assert verdict.faulty_stage in (f"steps.{step}.beams.parents", f"steps.{step}.beams.tokens"), verdict.sentence
    assert "the tie is broken in another way" in verdict.sentence
    assert f"The candidate first differs at step {step}, in the choice of its hypotheses" in verdict.sentence


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_isolated_steps_show_a_kv_cache_fault_only_in_layers(sides: Sides, runtime: str) -> None:
    """With a fault in the order of the caches, isolated steps show it in layers alone, and in no row after."""
    language = sides.models[runtime]
    with contextlib.ExitStack() as held:
        again = walked(language, sides.ancestry, sides.decoding, given=sides.reference, stages=INSIDE)
        held.enter_context(cache_not_reordered(runtime))
        off = walked(language, sides.ancestry, sides.decoding, given=sides.reference)
    assert judge(compare(sides.reference, again)).within
    beyond = [each.stage for each in compare(sides.reference, off).stages if not each.passes]
    assert beyond and all(".layers." in stage for stage in beyond), beyond


def test_wrong_beam_size_or_too_large_step_trace_raises_one_line_error(sides: Sides) -> None:
    with pytest.raises(BadInput, match=r"^the steps to follow are those of 3 beams, and beam_size is 2; expected"):
        walked(sides.models["pytorch"], sides.ancestry, Decoding((), 6, beam_size=2))
    with pytest.raises(BadInput, match="decoding steps with these stages would take"):
        walked(sides.models["gguf"], sides.ancestry, sides.decoding, most=40_000)
