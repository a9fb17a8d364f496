"""Text scores by demo/qwen3 on PyTorch and llama.cpp sessions, against transformers log-probabilities.

Scores on vLLM are tested in `vllm/test_sessions.py`, where an engine already runs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from transformers import AutoTokenizer

from tests.support.processes import Background, eventually
from workbench.core.errors import BadInput, SessionDied
from workbench.core.settings import Settings
from workbench.decoding.ctc_beam.decoder import CtcDecoder
from workbench.decoding.ctc_beam.lexicon import Lexicon
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.neural import NeuralModel
from workbench.pipelines.text.causal_lm import CausalLm
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.runtimes.pytorch.causal_lm import open_session

pytestmark = pytest.mark.usefixtures("shared_cache")

DEMO = Path(__file__).parents[2] / "assets" / "demo-funasr-nano"
TEXTS = ("one two three", "", "one two", "one two three four", "7 0 4", "語 don't", " a  b ", "<|im_end|>", "one two")
WORDS = ("one", "two", "don", "'t", "3", "語")
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def by_definition() -> Any:
    """Returns ln P of each token of a text and of its end, by one pass of transformers' network."""
    writer = open_session(DEMO, "demo", Settings(threads=1)).writer
    assert isinstance(writer, CausalLm)
    network: Any = writer.language.network  # type: ignore[attr-defined]
    tokenizer = AutoTokenizer.from_pretrained(DEMO / "Qwen3-demo")
    begin = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id

    def logprobs(text: str) -> list[float]:
        ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        row = [begin, *ids, tokenizer.eos_token_id]
        with torch.inference_mode():
            log_probabilities = network(torch.tensor([row])).logits[0].double().log_softmax(-1)
        return [float(log_probabilities[position, token]) for position, token in enumerate(row[1:])]

    return logprobs


@pytest.fixture(scope="module", params=["pytorch", "gguf"])
def session(request: pytest.FixtureRequest) -> Iterator[OpenSession]:
    """A session in a child process."""
    settings = {"quantization": "f32"} if request.param == "gguf" else {}
    with Registry() as registry, registry.open("demo/qwen3", request.param, threads=1, **settings) as handle:
        yield handle


def test_token_logprobs_of_a_text_equal_transformers(session: OpenSession, by_definition: Any) -> None:
    for text, with_end, without_end in zip(TEXTS, session.score_texts(TEXTS), session.score_texts(TEXTS, end=False)):
        *expected, end = by_definition(text)
        for actual in (with_end, without_end):
            assert (
                actual.ids.dtype == np.int64
                and actual.logprobs.dtype == np.float64
                and len(actual.ids) == len(expected)
            )
            np.testing.assert_allclose(actual.logprobs, expected, rtol=0, atol=TOLERANCE, err_msg=text)
        assert without_end.end is None and with_end.end == pytest.approx(end, abs=TOLERANCE)
        assert with_end.total == pytest.approx(sum(expected) + end, abs=TOLERANCE)
    assert session.score_texts([]) == []


def test_word_scores_of_the_neural_model_sum_to_the_text_score(session: OpenSession, by_definition: Any) -> None:
    """Also for words that change the tokens of the previous word, and with or without cached scores."""
    histories = list(product(range(len(WORDS)), repeat=3))
    totals = []
    for capacity in (1 << 16, 1):
        model = NeuralModel(session.score_texts, WORDS, capacity)
        states, total = np.full(len(histories), model.start), np.zeros(len(histories))
        for words in zip(*histories, strict=True):
            word_scores, states = model.advance(states, np.array(words))
            total += word_scores
        totals.append(total + model.final(states))
        assert model.calls == 4
    for number in range(0, len(histories), 7):
        text = " ".join(WORDS[word] for word in histories[number])
        assert totals[0][number] == pytest.approx(sum(by_definition(text)), abs=TOLERANCE), text
    np.testing.assert_allclose(totals[0], totals[1], rtol=0, atol=TOLERANCE)


def test_ctc_search_neural_lm_score_equals_the_score_of_the_whole_text(
    session: OpenSession, by_definition: Any
) -> None:
    """The lexicon has homophones, and words that change the tokens of the previous word."""
    lexicon = Lexicon(WORDS, (((1,),), ((1,), (2, 1)), ((2,),), ((3,),), ((2, 3),), ((3, 1),)))
    model = NeuralModel(session.score_texts, lexicon.words)
    options = SearchOptions(beam_size=40, nbest=20, gamma=0.7)
    decoder = CtcDecoder(4, 0, options, lexicon=lexicon, neural_lm=model)
    draw = np.random.default_rng(3)
    batch = decoder.decode([draw.normal(0, 2, (frames, 4)) for frames in (7, 4)])
    assert model.calls <= 8, "one call for each frame, and one for the ends"
    for hypothesis in (item for hypotheses in batch for item in hypotheses[::3]):
        expected = 0.7 * sum(by_definition(" ".join(hypothesis.words or ())))
        assert hypothesis.neural_lm == pytest.approx(expected, abs=TOLERANCE), hypothesis.words


def test_invalid_texts_raise_one_line_error(session: OpenSession) -> None:
    invalid: list[tuple[Any, str]] = [
        ("a text", r"^'a text' is not a list of texts; expected a list, even for one text$"),
        (["a", 1], r"^text 2 is of type int; expected a text$"),
        (["\ud800"], r"^text 1 holds half a character; expected a text that can be written as UTF-8$"),
        (
            ["seven " * 3000],
            r"^the text 'seven seven .*\.\.\. has \d+ tokens; expected at most 2047, which the context of",
        ),
    ]
    for texts, message in invalid:
        with pytest.raises(BadInput, match=message):
            session.score_texts(texts)


@pytest.mark.parametrize("session", ["gguf"], indirect=True)
def test_killed_process_raises_session_died_and_the_next_call_restarts_it(session: OpenSession) -> None:
    [expected] = session.score_texts(["one two"])
    pid = session.pid
    assert pid is not None
    long_texts = [f"{number} " + "seven " * 300 for number in range(2000)]
    process = psutil.Process(pid)
    seconds_before = process.cpu_times().user
    call = Background(lambda: session.score_texts(long_texts))
    eventually(lambda: process.cpu_times().user > seconds_before + 0.3)  # the process is scoring
    os.kill(pid, signal.SIGKILL)
    error = call.ended().error
    assert isinstance(error, SessionDied) and "SIGKILL" in str(error) and "\n" not in str(error)
    assert str(error).endswith("while scoring texts; the next call starts a new one")
    assert (
        session.score_texts(["one two"])[0].total == pytest.approx(expected.total, abs=TOLERANCE) and session.pid != pid
    )
