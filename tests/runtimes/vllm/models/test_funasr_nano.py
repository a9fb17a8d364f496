"""Fun-ASR-Nano in vLLM's engine gives the same tokens as the PyTorch runtime, for every kind of request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.runtimes.vllm.models import answers  # noqa: E402
from tests.support import with_vllm  # noqa: E402
from tests.support.tiny_checkpoints import noise  # noqa: E402
from tests.support.tiny_funasr_nano import tiny_funasr_nano  # noqa: E402
from workbench import Registry  # noqa: E402
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import write_directory  # noqa: E402
from workbench.families.language.directory import AUDIO  # noqa: E402
from workbench.families.speech_llm.funasr_nano import (  # noqa: E402
    SPEECH,
    FunasrNanoModel,
    FunasrNanoOptions,
    prompt_ids,
    read_vllm_funasr_nano,
)

ROOT = Path(__file__).resolve().parents[4]
SHORT_BYTES = 1 << 18  # bytes; a larger sample is a long recording


def demo(_: Path) -> tuple[Path, list[Path]]:
    files = [file for file in sorted((ROOT / "assets" / "samples").glob("*.wav")) if file.stat().st_size < SHORT_BYTES]
    return ROOT / "assets" / "demo-funasr-nano", (files * 2)[:8]


def full(folder: Path) -> tuple[Path, list[Path]]:
    """Random weights, a vocabulary without an unused row, and an adaptor that stacks three frames."""
    directory = tiny_funasr_nano(
        folder / "tiny",
        language_changes={
            "vocab_size": 482,
            "hidden_size": 64,
            "head_dim": 32,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
        },
        audio_adaptor_conf={"llm_dim": 64, "downsample_rate": 3},
    )
    files = []
    for number in range(8):
        sound, rate = noise(0.3 + 0.4 * number, seed=number)
        files.append(folder / f"{number}.wav")
        soundfile.write(files[-1], sound, rate)
    return directory, files


class Case:
    """A model, its tokens on PyTorch, and its answers in vLLM."""

    def __init__(self, directory: Path, files: list[Path], folder: Path):
        write_directory(plan_of(directory, "funasr_nano"), folder / "served")
        self.model: FunasrNanoModel = read_vllm_funasr_nano(folder / "served")
        placeholder = self.model.tokenizer.id_of(AUDIO)
        assert placeholder is not None
        self.placeholder = placeholder
        options: dict[str, Any] = {"max_new_tokens": 60, "vad": "none"}
        with Registry(isolate=False) as registry, registry.open(directory, runtime="pytorch") as session:
            traces = [session.trace(file, stages="tokens,llm.embeddings", **options) for file in files]
        self.expected = [trace["tokens"].tolist() for trace in traces]
        job = {
            "directory": str(folder / "served"),
            "files": [str(file) for file in files],
            "ids": self.ids(),
            "stops": self.model.stop_ids,
            "placeholder": placeholder,
            "mixed": str(folder / "mixed.npz"),
        }
        self._write_mixed(folder / "mixed.npz", traces[0]["llm.embeddings"])
        (folder / "job.json").write_text(json.dumps(job))
        log = folder / "log.txt"
        engine = with_vllm.start(answers.__name__, [str(folder / "job.json"), str(folder / "out.json")], log)
        assert engine.wait() == 0, log.read_text()[-4000:]
        self.output = json.loads((folder / "out.json").read_text())

    def ids(self, **options: Any) -> list[int]:
        """The ids of the prompt, with the placeholder at the position of the speech."""
        ids = prompt_ids(self.model, FunasrNanoOptions(**options))
        prompt: list[int] = np.where(ids == SPEECH, self.placeholder, ids).tolist()
        return prompt

    def _write_mixed(self, path: Path, embeddings: np.ndarray) -> None:
        """Write the prompt of the first recording: ids of its text and PyTorch's embeddings of its speech."""
        ids = self.ids()
        position, speech = ids.index(self.placeholder), len(embeddings) - len(ids) + 1
        is_embedding = np.zeros(len(embeddings), dtype=bool)
        is_embedding[position : position + speech] = True
        complete = np.array([*ids[:position], *[0] * speech, *ids[position + 1 :]])
        np.savez(
            path, ids=complete, embeddings=np.where(is_embedding[:, None], embeddings, 0), is_embedding=is_embedding
        )


@pytest.fixture(scope="module", params=[demo, full], ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("engine")
    return Case(*request.param(folder), folder)


@pytest.mark.slow
def test_greedy_token_ids_equal_pytorch_alone_and_in_a_batch(case: Case) -> None:
    assert case.output["alone"] == case.expected
    assert case.output["together"] == case.expected
    assert len({tuple(ids) for ids in case.expected}) > 4  # the tokens depend on the recording


@pytest.mark.slow
def test_transcriptions_and_chats_use_the_prompt_of_the_model_family(case: Case) -> None:
    output = case.output
    assert output["asked"] == case.expected and output["chat"] == case.expected[0]
    assert output["options"] == case.ids(language="en", itn=False, hotwords=("one", "two"))
    assert output["languages"]["None"] is None and output["languages"]["auto"] is None
    assert output["languages"]["ga"] == "ga" and output["languages"]["xx"].startswith(
        "language is 'xx'; expected one of"
    )
    speech = output["chat_prompt"].count(case.placeholder)
    assert speech == output["counted"] and len(output["chat_prompt"]) == len(case.ids()) + speech - 1
    assert case.placeholder not in output["text"]


@pytest.mark.slow
def test_speech_embeddings_among_token_ids_give_the_same_tokens_as_audio(case: Case) -> None:
    assert case.output["mixed"] == [case.expected[0], case.expected[0]]


@pytest.mark.slow
def test_invalid_requests_leave_the_engine_usable(case: Case) -> None:
    if case.placeholder >= case.model.language.vocabulary:  # an id beyond the table is looked up as its first row
        assert case.output["stray"][0] == case.output["stray"][1]
    assert "has no option dihter; did you mean dither?" in case.output["refused"]
    assert case.output["after"] == case.expected[0]
