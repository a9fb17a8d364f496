"""Sessions of language models from GGUF files: third-party files, converted checkpoints and damaged files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_fireredasr import tiny_fireredasr
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from tests.support.tiny_gguf import tiny_gguf, tiny_halves
from tests.support.tiny_language import tiny_language
from workbench.conversion.checkpoint import convert, plans_of
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.pipelines.text.text_session import TextSession
from workbench.runtimes.gguf.causal_lm import open_session
from workbench.runtimes.gguf.llama_cpp.llama_tokenizer import LlamaTokenizer
from workbench.runtimes.pytorch.causal_lm import open_session as open_on_pytorch

SETTINGS = Settings(threads=1)
MESSAGES = [{"role": "user", "content": "Count from one to three."}]


def convert_checkpoint(checkpoint: Path, family: str, quantization: str = "f32") -> Path:
    path = checkpoint.with_suffix(".gguf")
    convert(plans_of(checkpoint, family), quantization, path)
    return path


def test_third_party_gguf_file_generates_the_tokens_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    network = tiny_gguf(tmp_path / "it.gguf", seed=3)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "it.tokenizer")
    session = open_session(tmp_path / "it.gguf", "it", SETTINGS)
    assert isinstance(session.writer.model.tokenizer, LlamaTokenizer)  # type: ignore[attr-defined]
    prompt = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = network.generate(**prompt, max_new_tokens=24, do_sample=False, eos_token_id=[456, 458], pad_token_id=456)
    expected = output[0, prompt["input_ids"].shape[1] :].tolist()
    generation = session.generate(MESSAGES, max_new_tokens=24)
    assert list(generation.tokens) == expected and len(expected) > 3
    assert generation.text == tokenizer.decode(expected, skip_special_tokens=True)
    assert session.writer.stop_ids == (458, 456)
    trace = session.trace("seven", max_new_tokens=4)
    assert trace["logits"][-1].argmax() == trace["tokens"][0]
    assert trace.meta["dtype"] == "f32" and trace.meta["runtime"] == "gguf"


def test_file_whose_tokenizer_has_no_placeholder_names_the_directory_as_the_remedy(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "it.gguf", "llama")
    session = open_session(tmp_path / "it.gguf", "it", SETTINGS)
    sentence = r"of it\.gguf has no token <\|fim_pad\|>, .*; a file names no other; open the model's dir"
    with pytest.raises(BadInput, match=sentence):
        session.generate("<|fim_pad|>", embeddings=[np.ones((2, 32), np.float32)])


def directory_of(folder: Path) -> tuple[Path, str]:
    return tiny_language(folder / "it", seed=3, tie_word_embeddings=True), "causal_lm"


def nano_of(folder: Path) -> tuple[Path, str]:
    return tiny_funasr_nano(folder / "it"), "funasr_nano"


@pytest.mark.parametrize("make", [directory_of, nano_of])
def test_converted_file_gives_the_stages_of_its_checkpoint(
    tmp_path: Path, make: Callable[[Path], tuple[Path, str]]
) -> None:
    checkpoint, family = make(tmp_path)
    path = convert_checkpoint(checkpoint, family)
    session, reference = open_session(path, "it", SETTINGS), open_on_pytorch(checkpoint, "it", SETTINGS)
    assert not isinstance(session.writer.model.tokenizer, LlamaTokenizer)  # type: ignore[attr-defined]
    trace, expected = (each.trace("seven é", max_new_tokens=8) for each in (session, reference))
    assert list(trace) == list(expected)
    for stage in trace:
        if expected[stage].dtype.kind == "f":
            np.testing.assert_allclose(trace[stage], expected[stage], atol=1e-3)
        else:
            np.testing.assert_array_equal(trace[stage], expected[stage])
    assert session.writer.stop_ids == reference.writer.stop_ids


def test_language_part_of_a_fireredasr_file_opens_as_a_language_model(tmp_path: Path) -> None:
    path = convert_checkpoint(tiny_fireredasr(tmp_path / "it"), "fireredasr", "f16")
    session = open_session(path, "it", SETTINGS)
    assert session.generate("seven", max_new_tokens=3).tokens and session.writer.dtype == "f16"


def assert_close_ends_use(session: TextSession) -> None:
    tokenizer = session.writer.model.tokenizer  # type: ignore[attr-defined]
    session.close()
    with pytest.raises(BadInput, match="the session of it is closed"):
        session.generate("seven")
    del session
    tokenizer.model.close()
    with pytest.raises(BadInput, match=r"^it\.gguf is closed"):
        tokenizer.encode("seven")


def test_closed_session_raises_one_line_error(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    assert_close_ends_use(open_session(tmp_path / "it.gguf", "it", SETTINGS))


def test_file_without_a_tokenizer_raises_one_line_error(tmp_path: Path) -> None:
    tiny_halves(tmp_path / "it.gguf")
    with pytest.raises(
        BadInput, match=r"^it\.gguf carries no tokenizer \(workbench\.files\); convert the model again$"
    ):
        open_session(tmp_path / "it.gguf", "it", SETTINGS)


def test_missing_tensor_raises_one_line_error_with_its_name(tmp_path: Path) -> None:
    path = convert_checkpoint(tiny_funasr_nano(tmp_path / "it"), "funasr_nano")
    path.write_bytes(path.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight"))
    with pytest.raises(BadInput, match=r"^it\.gguf has no tensor blk\.1\.attn_q\.weight; expected one of shape"):
        open_session(path, "it", SETTINGS)


def test_nearest_tokens_of_an_embedding_equal_those_of_pytorch(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "lm", seed=4)
    sessions = (
        open_on_pytorch(directory, "lm", SETTINGS),
        open_session(convert_checkpoint(directory, "causal_lm"), "lm", SETTINGS),
    )
    width = sessions[0].writer.table.shape[1]
    values = np.random.default_rng(3).normal(size=(4, width)).astype(np.float32)
    neighbours, expected = (session.neighbours(values, 3) for session in sessions)
    np.testing.assert_array_equal(neighbours.ids, expected.ids)
    np.testing.assert_allclose(neighbours.cosines, expected.cosines, atol=1e-6)
    assert neighbours.texts == expected.texts
    np.testing.assert_array_equal(neighbours.sample, expected.sample)
