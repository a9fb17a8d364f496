"""vLLM sessions in their own processes: the demo models compared with PyTorch, parallel calls, a killed engine, and
released memory.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.support.shared_data import SHARED
from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.decoding.neural import NeuralModel
from workbench.families.language.directory import PLACEHOLDER
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.session.values import Transcript
from workbench.trace.trace import Trace

pytest.importorskip("vllm")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("shared_cache")]

SAMPLES = sorted((Path(__file__).parents[3] / "assets" / "samples").glob("*.wav"))
SMALL = {"threads": 1, "kv_gigabytes": 0.1}
EXACT = 1e-4  # of hidden states in float32
STRINGS = 300
PART_BYTES = 30 * 16000 * 2  # a longer recording is transcribed in parts and traced in one
WITHOUT_PARTS = [path for path in SAMPLES if path.stat().st_size < PART_BYTES]
ROUNDS = 3


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with Registry() as instance:
        yield instance


@pytest.fixture(scope="module")
def nano(registry: Registry) -> Iterator[OpenSession]:
    """A session that stays open for all tests, so that they share its engine, which starts slowly."""
    with registry.open("demo/funasr-nano", "vllm", **SMALL) as engine:
        yield engine


@pytest.fixture(scope="module")
def language(registry: Registry) -> Iterator[OpenSession]:
    """A session of a language model by itself, also open for all tests."""
    with registry.open("demo/qwen3", "vllm", **SMALL) as engine:
        yield engine


@pytest.fixture(scope="module", params=["demo/funasr-nano", "demo/fireredasr"])
def pair(
    request: pytest.FixtureRequest, registry: Registry, nano: OpenSession
) -> Iterator[tuple[OpenSession, OpenSession]]:
    """A demo model on vLLM and on PyTorch."""
    with (
        registry.open(request.param, "vllm", **SMALL) as engine,
        registry.open(request.param, "pytorch", threads=1) as reference,
    ):
        yield engine, reference


def strings() -> list[Any]:
    """The shipped recordings, and the strings of the held-out speaker where the data set is present."""
    from workbench.training.data.digits import load_fsdd, split_by_speaker
    from workbench.training.evaluation import evaluation_strings

    if not (SHARED / "fsdd").is_dir():
        return list(SAMPLES)
    _, held_out = split_by_speaker(load_fsdd(SHARED / "fsdd"))
    return [*SAMPLES, *((string.samples, SAMPLE_RATE) for string in evaluation_strings(held_out, count=STRINGS))]


def transcripts(session: OpenSession, sounds: list[Any], **options: Any) -> list[tuple[tuple[int, ...], str]]:
    events = session.stream_batch(sounds, **options)
    results = {number: event for number, event in events if isinstance(event, Transcript)}
    return [(results[number].tokens, results[number].text) for number in range(len(sounds))]


def test_transcripts_of_all_recordings_equal_pytorch(pair: tuple[OpenSession, OpenSession]) -> None:
    engine, reference = pair
    sounds = strings()
    assert transcripts(engine, sounds) == transcripts(reference, sounds, batch_size=16)


def test_every_traced_stage_equals_pytorch(pair: tuple[OpenSession, OpenSession]) -> None:
    actual, expected = (session.trace(SAMPLES[0]) for session in pair)
    assert list(actual) == list(expected)
    for stage, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(actual[stage], array, rtol=0, atol=EXACT, err_msg=stage)
        else:
            assert (actual[stage] == array).all(), stage
    assert actual.meta["runtime"] == "vllm" and actual.meta["input_digest"] == expected.meta["input_digest"]
    selected = pair[0].trace(SAMPLES[0], stages="adaptor.output,llm.layers.1")
    assert list(selected) == ["adaptor.output", "llm.layers.1"]
    np.testing.assert_array_equal(selected["adaptor.output"], actual["adaptor.output"])


def test_options_reach_the_front_end_and_the_prompt(registry: Registry, nano: OpenSession) -> None:
    option_sets = ({"dither": 1.0}, {"language": "en", "itn": False}, {"hotwords": ["seven"]}, {"cmvn": "off"})
    with registry.open("demo/funasr-nano", "pytorch", threads=1) as reference:
        for options in option_sets:
            actual, expected = (
                session.trace(SAMPLES[0], "llm.embeddings,tokens", **options) for session in (nano, reference)
            )
            close = np.abs(actual["llm.embeddings"] - expected["llm.embeddings"]).max() <= EXACT
            assert close and actual["tokens"].tolist() == expected["tokens"].tolist(), options
    assert any("repetition_penalty" in note for note in nano.transcribe(SAMPLES[0], repetition_penalty=1.1).notes)
    with pytest.raises(BadInput, match="expected 1 to"):
        nano.transcribe(SAMPLES[0], max_new_tokens=0)


def test_generated_text_stages_and_alternatives_equal_pytorch(registry: Registry, language: OpenSession) -> None:
    engine = language
    with registry.open("demo/qwen3", "pytorch", threads=1) as reference:
        for prompt in ("one two three", "Count from three to nine.", [{"role": "user", "content": "7 0 4"}]):
            actual, expected = (session.generate(prompt, max_new_tokens=40) for session in (engine, reference))
            assert (actual.tokens, actual.text, actual.finish) == (
                expected.tokens,
                expected.text,
                expected.finish,
            )
            assert actual.prompt_tokens == expected.prompt_tokens
        actual, expected = (session.trace("one two three", "llm.*,logits,tokens") for session in (engine, reference))
        assert list(actual) == list(expected) and {"tokens", "tokens.alternatives", "tokens.logprobs"} <= set(actual)
        for stage, array in expected.items():
            np.testing.assert_allclose(actual[stage], array, rtol=0, atol=EXACT, err_msg=stage)
        actual, expected = (
            session.generate("one two", max_new_tokens=9, alternatives=3) for session in (engine, reference)
        )
        for actual_step, expected_step in zip(actual.alternatives, expected.alternatives, strict=True):
            assert [(token.id, token.text) for token in actual_step] == [
                (token.id, token.text) for token in expected_step
            ]
            assert [token.logprob for token in actual_step] == pytest.approx(
                [token.logprob for token in expected_step], abs=EXACT
            )


def test_text_scores_equal_pytorch_also_in_parallel_calls(registry: Registry, language: OpenSession) -> None:
    """Also in parallel calls; the scores of a neural model's words add up to the score of their text."""
    texts = ["one two three", "", "one two three four", "7 0 4", "語 don't", "one two three", "seven " * 50]
    with registry.open("demo/qwen3", "pytorch", threads=1) as reference:
        reference_scores = {end: reference.score_texts(texts, end=end) for end in (True, False)}
    with ThreadPoolExecutor(4) as pool:
        calls = [(end, pool.submit(language.score_texts, texts, end=end)) for end in (True, False)]
        for end, call in calls:
            for actual, expected in zip(call.result(), reference_scores[end], strict=True):
                assert actual.ids.tolist() == expected.ids.tolist() and (actual.end is None) == (not end)
                np.testing.assert_allclose(actual.logprobs, expected.logprobs, rtol=0, atol=EXACT)
                assert actual.total == pytest.approx(expected.total, abs=EXACT * (1 + len(actual.ids)))
    model = NeuralModel(language.score_texts, ["one", "two", "don", "'t"])
    state, total = np.array([model.start]), 0.0
    for word in (0, 2, 3, 1):
        scores, state = model.advance(state, np.array([word]))
        total += float(scores[0])
    [complete] = language.score_texts(["one don 't two"])
    assert total + model.final(state)[0] == pytest.approx(complete.total, abs=EXACT) and model.calls == 5
    with pytest.raises(BadInput, match=r"^the text 'seven seven .* tokens; expected at most 2047, which the context"):
        language.score_texts(["seven " * 3000])


def test_speech_embeddings_in_a_prompt_give_the_transcript(language: OpenSession, nano: OpenSession) -> None:
    """One embedding, or two, in the speech model's own prompt give the stages that the speech model has."""
    speech_trace = nano.trace(SAMPLES[0], "prompt.text,adaptor.output,llm.*,tokens")
    rows, prompt, expected = (
        speech_trace["adaptor.output"],
        str(speech_trace["prompt.text"]),
        tuple(speech_trace["tokens"].tolist()),
    )
    generation = language.generate(prompt, embeddings=[rows], chat=False, alternatives=2)
    assert generation.tokens == expected and generation.prompt_tokens == len(speech_trace["llm.embeddings"])
    assert tuple(step[0].id for step in generation.alternatives) == expected
    prompt_of_two = prompt.replace(PLACEHOLDER, PLACEHOLDER * 2)
    with ThreadPoolExecutor(8) as pool:  # beside requests without embeddings
        split_calls = [
            pool.submit(language.generate, prompt_of_two, embeddings=[rows[:3], rows[3:]], chat=False) for _ in range(4)
        ]
        text_calls = [pool.submit(language.generate, "one two three", max_new_tokens=20) for _ in range(4)]
        assert {call.result().tokens for call in split_calls} == {expected}
        assert {call.result().tokens for call in text_calls} == {
            language.generate("one two three", max_new_tokens=20).tokens
        }
    trace = language.trace(prompt, "llm.*,tokens", embeddings=[rows], chat=False)
    for stage in trace:
        if stage.startswith("llm."):
            np.testing.assert_allclose(trace[stage], speech_trace[stage], rtol=0, atol=EXACT, err_msg=stage)
    with pytest.raises(BadInput, match=r"holds the placeholder .* once and comes with 2 embeddings"):
        language.generate(prompt, embeddings=[rows, rows], chat=False)
    with pytest.raises(BadInput, match="expects vectors of"):
        language.generate(prompt, embeddings=[rows[:, 1:]], chat=False)


# Capturing changes no transcript, of a single request or of parallel requests.


def transcribe(session: OpenSession, sample: Path) -> tuple[tuple[int, ...], str]:
    transcript = session.transcribe(sample, vad="none")
    return transcript.tokens, transcript.text


def ends(trace: Trace) -> tuple[tuple[int, ...], str]:
    return tuple(trace["tokens"].tolist()), str(trace["text"])


def test_capture_changes_no_tokens_of_traced_or_parallel_requests(nano: OpenSession, tmp_path: Path) -> None:
    expected = {sample: transcribe(nano, sample) for sample in WITHOUT_PARTS}
    traces = {sample: nano.trace(sample) for sample in WITHOUT_PARTS[:2]}
    assert all(ends(trace) == expected[sample] for sample, trace in traces.items())
    with ThreadPoolExecutor(max_workers=4 * len(WITHOUT_PARTS)) as pool:
        transcript_calls = [
            (sample, pool.submit(transcribe, nano, sample)) for _ in range(ROUNDS) for sample in WITHOUT_PARTS
        ]
        trace_calls = [
            (sample, pool.submit(nano.trace, sample, out=tmp_path / f"{number}.safetensors"))
            for number, sample in enumerate(WITHOUT_PARTS)
        ]
        assert all(call.result() == expected[sample] for sample, call in transcript_calls)
        call_traces = [(sample, call.result()) for sample, call in trace_calls]
    assert all(ends(trace) == expected[sample] for sample, trace in call_traces)
    for sample, trace in call_traces:
        for stage in traces.get(sample, ()):
            if trace[stage].dtype.kind == "f":
                # Rows of a batch are summed in another order than those of one request.
                np.testing.assert_allclose(trace[stage], traces[sample][stage], rtol=0, atol=1e-4, err_msg=stage)
    assert len(list(tmp_path.iterdir())) == len(WITHOUT_PARTS)


def test_only_requested_stages_are_traced_and_a_failed_trace_leaves_no_file(nano: OpenSession, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    assert list(nano.trace(WITHOUT_PARTS[0], "encoder.output,llm.norm", out=path)) == ["encoder.output", "llm.norm"]
    path.unlink()
    with pytest.raises(BadInput, match="matches 'decoder"):
        nano.trace(WITHOUT_PARTS[0], "decoder.*", out=path)
    assert not list(tmp_path.iterdir())


# Engines that end.


def test_killed_engine_fails_every_running_call_and_the_next_call_succeeds(nano: OpenSession) -> None:
    expected = nano.transcribe(SAMPLES[0]).text
    at_work, errors = threading.Barrier(9), list[Exception]()
    front_end = nano.pid
    assert [is_forked(child.pid) for child in engine_processes(front_end)] == [True], (
        "the engine shares the imports of vLLM"
    )

    def ask(number: int) -> None:
        # Sampling without an end keeps the engine at work.
        stream = nano.stream(SAMPLES[0], temperature=1.5, max_new_tokens=1500, min_new_tokens=1500, seed=number)
        next(event for event in stream if type(event).__name__ == "Partial")
        at_work.wait(60)
        try:
            list(stream)
        except SessionDied as error:
            errors.append(error)

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(ask, number) for number in range(8)]
        at_work.wait(60)
        for process in engine_processes(front_end):
            process.send_signal(signal.SIGKILL)
        for call in calls:
            call.result(60)
    assert len(errors) == 8
    assert all("was ended by SIGKILL" in str(error) and "\n" not in str(error) for error in errors)
    assert nano.transcribe(SAMPLES[0]).text == expected
    assert nano.pid == front_end, "the front-end process has not ended"
    assert [is_forked(child.pid) for child in engine_processes(front_end)] == [True], "the new engine is forked too"


def engine_processes(front_end: int | None) -> list[psutil.Process]:
    assert front_end is not None
    processes = [
        process
        for process in psutil.Process(front_end).children(recursive=True)
        if "EngineCore" in "".join(process.cmdline())
    ]
    assert processes
    return processes


def is_forked(pid: int) -> bool:
    """Whether the process is a fork of its parent that has not started another program (see proc(5))."""
    flags = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6])
    return bool(flags & 0x40)


def test_failed_engine_start_raises_an_error_with_reason_and_log_path(registry: Registry) -> None:
    with pytest.raises(Unavailable, match=r"vLLM cannot start demo/qwen3: .*max_length is .*its log: (.*)\)") as raised:
        registry.open("demo/qwen3", "vllm", max_length=10**6)
    assert os.path.isfile(str(raised.value).rpartition("its log: ")[2].removesuffix(")"))  # noqa: PTH113


def test_reason_of_a_failure_in_the_engine_process_is_read_from_its_log() -> None:
    """The engine's process fails after its start, and only its log contains the reason."""
    message = r"vLLM cannot start demo/qwen3: .*less than requested memory for kv"
    with Registry(memory_bytes=1 << 44) as registry, pytest.raises(Unavailable, match=message):
        registry.open("demo/qwen3", "vllm", threads=1, kv_gigabytes=9999.0)


@pytest.mark.parametrize("model", ["demo/sensevoice", "demo/paraformer"])
def test_models_without_an_autoregressive_part_are_unavailable(registry: Registry, model: str) -> None:
    with pytest.raises(Unavailable, match="no autoregressive part, so there is nothing for vLLM to serve"):
        registry.open(model, "vllm")


def test_engine_is_unloaded_before_the_next_starts_when_memory_is_short(
    registry: Registry, nano: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test, as it closes the registry."""
    assert registry.unload("demo/fireredasr", "vllm"), "an earlier test has opened it"
    assert nano.transcribe(SAMPLES[0]).text and nano.pid is not None
    processes = [psutil.Process(nano.pid), *psutil.Process(nano.pid).children(recursive=True)]
    overlap, starting = list[str](), list[str]()

    def look(fraction: float, activity: str) -> None:
        if activity.startswith("vLLM"):  # earlier activities convert the checkpoint and free memory
            overlap.extend(f"{process.pid} while {activity}" for process in processes if alive(process))
            starting.append(activity)

    monkeypatch.setattr(registry._budget, "total", 3_200_000_000)
    with registry, registry.open("demo/fireredasr", "vllm", **SMALL, on_progress=look) as recogniser:
        assert starting and overlap == []
        assert recogniser.transcribe(SAMPLES[0]).text
        [resident] = [
            engine for engine in registry.residents() if (engine.model, engine.runtime) == (recogniser.model, "vllm")
        ]
        assert resident.load_seconds > 0.3 and resident.memory_bytes > 5e8
        assert resident.log is not None and resident.log.is_file()
        last_processes = [psutil.Process(recogniser.pid), *psutil.Process(recogniser.pid).children(recursive=True)]
    assert not [process for process in last_processes if alive(process)], "nothing is left when the registry has closed"


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
