"""The small files in a GGUF file: unpacked byte for byte, generated for third-party layouts, refused where unsafe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType, GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gguf_files import funasr_nano_encoder, funasr_sensevoice, funasr_vad
from tests.support.tiny_checkpoints import tiny_sensevoice
from tests.support.tiny_funasr_nano import HIDDEN, tiny_funasr_nano
from tests.support.tiny_gguf import tiny_gguf
from workbench.core.errors import BadInput, Unavailable
from workbench.families.gguf_files import find_language_file
from workbench.families.language.causal_lm import read_causal_lm
from workbench.families.sanm.sensevoice import read_sensevoice
from workbench.families.speech_llm.funasr_nano import read_funasr_nano
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.runtimes.gguf.files.unpacking import notes, read_gguf_pair, unpacked


def file_with(
    path: Path, files: Sequence[tuple[str, bytes]], keys: Mapping[str, Any] = {}, architecture: str = "sensevoice-small"
) -> GgufFile:
    """A GGUF file in the workbench layout with these small files; `keys` replace its metadata or add to it."""
    writer = GGUFWriter(path, architecture)
    values: dict[str, Any] = {"workbench.version": 1, "workbench.files": [name for name, _ in files]}
    values |= {f"workbench.file.{number}": content for number, (_, content) in enumerate(files)}
    for name, value in {**values, **keys}.items():
        if isinstance(value, bytes):
            writer.add_key_value(name, list(value), GGUFValueType.ARRAY, sub_type=GGUFValueType.UINT8)
        elif isinstance(value, list) and value:
            writer.add_array(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf(path)


def test_files_stored_as_texts_are_unpacked(tmp_path: Path) -> None:
    texts = {"short.json": "{}", "long.json": "中\n" * 20_000, "nul": "a\0b\r\n"}
    keys = {f"workbench.file.{number}": text for number, text in enumerate(texts.values())}
    with unpacked(file_with(tmp_path / "it.gguf", [(name, b"") for name in texts], keys)) as directory:
        assert {name: (directory / name).read_bytes() for name in texts} == {
            name: text.encode() for name, text in texts.items()
        }


def test_unpacked_files_are_byte_exact_and_deleted_afterwards(tmp_path: Path) -> None:
    files = {"config.yaml": b"model: x\n", "Qwen3/vocab.json": bytes(range(256)) * 9, "a/b/c d.txt": "中".encode()}
    with unpacked(file_with(tmp_path / "it.gguf", list(files.items()))) as directory:
        contents = {
            path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
        }
        assert contents == files
        assert directory.name == "it.gguf"  # errors about the files begin with this name
    assert not directory.exists() and not directory.parent.exists()


def test_unpacked_files_are_deleted_when_the_reader_fails(tmp_path: Path) -> None:
    file = file_with(tmp_path / "it.gguf", [("a", b"1")])
    with pytest.raises(FileNotFoundError), unpacked(file) as directory:
        (directory / "no").read_bytes()
    assert not directory.parent.exists()


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../a", "a/../b", "/etc/passwd", "//a", "a//b", "a/", "./a", "a/.", "a\\b", "C:a", "a\0b", "a\nb"]
    + ["...", "a/ /b", "a ", "a*", "n" * 201, "~/../a"],
)
def test_unsafe_names_are_refused(tmp_path: Path, name: str) -> None:
    file = file_with(tmp_path / "it.gguf", [("fine", b"1"), (name, b"2")])
    with pytest.raises(BadInput, match=r"it.gguf carries a file named .*; expected a relative path"), unpacked(file):
        pass


@given(name=st.text(st.sampled_from("ab./\\ :~\0"), max_size=12))
def test_no_file_is_written_outside_the_folder_for_any_name(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = tmp_path_factory.mktemp("names")
    try:
        with unpacked(file_with(folder / "it.gguf", [(name, b"content")])) as directory:
            paths = [path for path in directory.parent.rglob("*") if path.is_file()]
            assert [path.read_bytes() for path in paths] == [b"content"]
            assert all(path.resolve().is_relative_to(directory.resolve()) for path in paths)
    except BadInput:
        pass
    assert [path.name for path in folder.iterdir()] == ["it.gguf"]


@pytest.mark.parametrize(
    ("files", "keys", "reason"),
    [
        (
            [("a", b"1")],
            {"workbench.version": 2},
            "it.gguf is of format version 2; expected 1: convert the model again",
        ),
        ([("a", b"1")], {"workbench.files": "a"}, "workbench.files in it.gguf is 'a'; expected an array of texts"),
        ([("a", b"1")], {"workbench.files": ["a", "b"]}, r"it.gguf names the file b, and has no workbench.file.1"),
        ([("a", b"1"), ("a", b"2")], {}, "it.gguf carries a file twice"),
        ([("a", b"1"), ("a/b", b"2")], {}, "it.gguf carries files whose names exclude each other, such as 'a/b'"),
        (
            [("a", b"1")],
            {"workbench.file.0": [1, 2]},
            r"workbench.file.0 in it.gguf is an array of int32; expected bytes",
        ),
        (
            [("a", b"1")],
            {"workbench.file.0": 7},
            r"workbench.file.0 in it.gguf is 7; expected an array of num",
        ),
        ([("a", b"1")], {"workbench.files": [str(n) for n in range(257)]}, "carries 257 files; expected at most 256"),
    ],
)
def test_inconsistent_embedded_files_are_refused(
    tmp_path: Path, files: list[tuple[str, bytes]], keys: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason), unpacked(file_with(tmp_path / "it.gguf", files, keys)):
        pass


def test_too_large_embedded_files_are_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.runtimes.gguf.files.unpacking.MAX_BYTES", 3 << 20)
    file = file_with(tmp_path / "it.gguf", [("a", bytes(2 << 20)), ("b", bytes(2 << 20))])
    monkeypatch.setattr(GgufFile, "numbers", None)
    with pytest.raises(BadInput, match=r"it.gguf carries files of 4 MB; expected at most 3 MB"), unpacked(file):
        pass


def test_missing_temporary_folder_raises_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_with(tmp_path / "it.gguf", [("a", b"1")])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no"))
    with pytest.raises(Unavailable, match=r"there is no room to unpack the files in it.gguf"), unpacked(file):
        pass


def test_unknown_architecture_without_embedded_files_is_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "it.gguf", "whisper")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with (
        pytest.raises(BadInput, match=r"it.gguf carries no files of a checkpoint \(workbench.files\)"),
        unpacked(read_gguf(tmp_path / "it.gguf")),
    ):
        pass


def test_funasr_layout_is_unpacked_for_the_reader_of_its_family(tmp_path: Path) -> None:
    path = funasr_sensevoice(tiny_sensevoice(tmp_path / "it"), tmp_path / "it.gguf")
    file = read_gguf(path)
    with unpacked(file) as directory:
        model = read_sensevoice(directory, path)
    assert model.vocabulary.pieces == read_sensevoice(tmp_path / "it").vocabulary.pieces
    assert [note.partition(":")[0] for note in notes(file)] == ["it.gguf carries no usable CMVN"]


def test_file_in_the_workbench_layout_has_no_notes(tmp_path: Path) -> None:
    assert notes(file_with(tmp_path / "it.gguf", [("tokens.json", b"[]")])) == ()


# Fun-ASR-Nano in two files.


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder file, a language model file and the checkpoint of the encoder."""
    folder = tmp_path_factory.mktemp("pair")
    tiny_funasr_nano(folder / "checkpoint")
    funasr_nano_encoder(folder / "checkpoint", folder / "encoder.gguf")
    tiny_gguf(folder / "qwen.gguf", "qwen3", hidden_size=HIDDEN)
    return folder


def test_encoder_and_language_files_are_read_as_one_checkpoint(pair: Path) -> None:
    encoder, language = read_gguf_pair(pair / "encoder.gguf")
    assert (encoder.name, language.name) == ("encoder.gguf", "qwen.gguf")
    with unpacked(encoder) as directory:
        model = read_funasr_nano(directory, encoder.path)
    expected = read_funasr_nano(pair / "checkpoint")
    assert (model.encoder, model.adaptor, model.frontend) == (expected.encoder, expected.adaptor, expected.frontend)
    assert (model.language.hidden_size, model.language.layers) == (HIDDEN, expected.language.layers)
    text = "<|im_start|>user\n语音转写：one two<|im_end|>"
    assert model.tokenizer.encode(text) == expected.tokenizer.encode(text)


def test_given_language_file_may_be_in_another_folder(pair: Path, tmp_path: Path) -> None:
    language_path = tmp_path / "elsewhere.gguf"
    language_path.write_bytes((pair / "qwen.gguf").read_bytes())
    encoder, language = read_gguf_pair(pair / "encoder.gguf", language_path)
    assert language.path == language_path
    with unpacked(encoder, language) as directory:
        assert read_funasr_nano(directory, encoder.path).language.directory.name == "elsewhere.gguf"
    with pytest.raises(BadInput, match=r"encoder.gguf is of architecture 'funasr-sensevoice-encoder'; expected a lang"):
        read_gguf_pair(pair / "encoder.gguf", pair / "encoder.gguf")


def test_plain_language_model_file_needs_no_second_file(pair: Path) -> None:
    first, second = read_gguf_pair(pair / "qwen.gguf")
    assert first is second
    with unpacked(second) as directory:
        assert read_causal_lm(directory).language.hidden_size == HIDDEN


def test_folder_must_hold_exactly_one_language_file(pair: Path, tmp_path: Path) -> None:
    encoder = tmp_path / "encoder.gguf"
    encoder.write_bytes((pair / "encoder.gguf").read_bytes())
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(3))
    (tmp_path / "text.gguf").write_bytes(b"text")
    (tmp_path / "folder.gguf").mkdir()
    funasr_vad(tmp_path / "vad.gguf", dict.fromkeys(VAD_SIZES, 4) | {"input_dim": 400})
    with pytest.raises(BadInput, match=r"encoder.gguf holds only the audio encoder .* into the same folder"):
        find_language_file(encoder)
    for name in ("q8.gguf", "q4.gguf"):
        (tmp_path / name).write_bytes((pair / "qwen.gguf").read_bytes())
        if name == "q8.gguf":
            assert find_language_file(encoder) == tmp_path / "q8.gguf"
    with pytest.raises(
        BadInput, match=r"the folder of encoder.gguf has several language models \(q4.gguf, q8.gguf\); leave one"
    ):
        find_language_file(encoder)


VAD_SIZES = (
    "input_dim",
    "input_affine_dim",
    "linear_dim",
    "proj_dim",
    "fsmn_layers",
    "lorder",
    "output_affine_dim",
) + ("output_dim",)


def test_encoder_and_language_files_of_different_widths_are_refused(pair: Path, tmp_path: Path) -> None:
    encoder = tmp_path / "encoder.gguf"
    encoder.write_bytes((pair / "encoder.gguf").read_bytes())
    tiny_gguf(tmp_path / "wide.gguf", "qwen3", hidden_size=2 * HIDDEN)
    with (
        unpacked(read_gguf(encoder)) as directory,
        pytest.raises(
            BadInput, match=r"llm_dim is 32 and the language model in wide.gguf is 64 wide; expected the same"
        ),
    ):
        read_funasr_nano(directory, encoder)


def test_large_embedded_file_is_unpacked_byte_exact(tmp_path: Path) -> None:
    content = np.random.default_rng(1).integers(0, 256, 1 << 16, dtype=np.uint8).tobytes()
    with unpacked(file_with(tmp_path / "it.gguf", [("model.bpe", content)])) as directory:
        assert (directory / "model.bpe").read_bytes() == content
