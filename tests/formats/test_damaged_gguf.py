"""Two hundred damaged GGUF files and further ones from hypothesis: each is quickly read or refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from tests.support.damaged_gguf import COUNT, TYPE, damaged, map_of
from tests.support.gguf_files import funasr_nano_encoder, funasr_paraformer, funasr_sensevoice, funasr_vad
from tests.support.tiny_checkpoints import tiny_paraformer, tiny_sensevoice
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from tests.support.tiny_gguf import tiny_gguf
from workbench.core.errors import BadInput
from workbench.families.gguf_files import family_of_gguf
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.unpacking import notes, unpacked

VAD = dict.fromkeys(("input_affine_dim", "linear_dim", "proj_dim", "lorder", "output_affine_dim", "output_dim"), 12)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Intact files of every layout, small enough for hundreds of damaged copies."""
    folder = tmp_path_factory.mktemp("sound")
    tiny_gguf(folder / "qwen3.gguf", quantization="q8_0")
    files = {"qwen3": folder / "qwen3.gguf", "every": every_kind(folder / "every.gguf")}
    files["sensevoice"] = funasr_sensevoice(tiny_sensevoice(folder / "s"), folder / "sensevoice.gguf", "f16")
    files["paraformer"] = funasr_paraformer(tiny_paraformer(folder / "p"), folder / "paraformer.gguf", "q8_0")
    files["nano"] = funasr_nano_encoder(tiny_funasr_nano(folder / "n"), folder / "nano.gguf")
    files["vad"] = funasr_vad(folder / "vad.gguf", {**VAD, "input_dim": 400, "fsmn_layers": 2})
    return files


def every_kind(path: Path) -> Path:
    """Writes a file with a value of every kind and tensors of many types; returns its path."""
    writer = GGUFWriter(path, "sensevoice-small")
    for kind in gguf.GGUFValueType:
        if kind not in (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING):
            writer.add_key_value(f"scalar.{kind.name}", 1, kind)
            writer.add_key_value(f"array.{kind.name}", [1, 0, 1], gguf.GGUFValueType.ARRAY, kind)
    writer.add_string("text", "a text")
    writer.add_string("text.long", "a text " * 1000)
    writer.add_array("texts", [f"text {number}" for number in range(1000)])
    values = np.random.default_rng(1).standard_normal((4, 256), np.float32)
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1"):
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_all(path: Path) -> None:
    """Reads every part that the reader offers; goes on after a part that the reader refuses."""
    file = read_gguf(path)
    reads: list[Callable[[], Any]] = [lambda: file.architecture, lambda: family_of_gguf(path), lambda: notes(file)]
    reads += [lambda key=key: file.metadata[key] for key in file.metadata]  # type: ignore[misc]
    reads += [lambda name=name: file.array(name) for name in file.tensors]  # type: ignore[misc]
    for read_part in reads:
        try:
            read_part()
        except BadInput as error:
            check(error)
    assert file.quantization


def check(error: BadInput) -> None:
    """Asserts that an error is one readable line."""
    text = str(error)
    assert "\n" not in text and len(text) < 600 and text.isprintable()


def unpack(path: Path) -> None:
    with unpacked(read_gguf(path)) as directory:
        assert directory.is_dir()


@pytest.mark.parametrize("layout", ["every", "qwen3", "sensevoice", "paraformer", "nano", "vad"])
def test_damaged_gguf_files_are_read_or_refused_within_a_second(
    sound: dict[str, Path], tmp_path: Path, layout: str
) -> None:
    refused, path = 0, tmp_path / "damaged.gguf"
    if layout == "nano":  # the reader expects its language model beside it
        (tmp_path / "language.gguf").write_bytes(sound["qwen3"].read_bytes())
    for name, content in damaged(sound[layout]):
        path.write_bytes(content)
        for use in (read_all, unpack):
            started = time.process_time()
            try:
                use(path)
            except BadInput as error:
                check(error)
                refused += use is read_all
            except Exception as error:
                raise AssertionError(f"{layout}, {name}: {error!r}") from error
            assert time.process_time() - started < 1, name
    assert refused > 100  # the reader detects most damage before it reads a value


def test_intact_gguf_files_are_read(sound: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "language.gguf").write_bytes(sound["qwen3"].read_bytes())
    for path in sound.values():
        copy = tmp_path / "copy.gguf"
        copy.write_bytes(path.read_bytes())
        read_all(copy)
        if path.stem != "every":
            unpack(copy)


def test_the_same_seed_gives_the_same_damage(sound: dict[str, Path]) -> None:
    first, second = list(damaged(sound["every"])), list(damaged(sound["every"]))
    assert first == second and len({name for name, _ in first}) == len(first) == 200
    assert list(damaged(sound["every"], seed=5)) != first
    content = sound["every"].read_bytes()
    assert all(each != content for _, each in first)


def test_field_map_of_a_gguf_file_matches_its_content(sound: dict[str, Path]) -> None:
    content = sound["every"].read_bytes()
    parts = map_of(sound["every"])
    numbers_by_name = {name: [n for n in parts.numbers if n.name == name] for name in {n.name for n in parts.numbers}}
    value = {
        name: [int.from_bytes(content[n.at : n.at + n.size], "little") for n in numbers]
        for name, numbers in numbers_by_name.items()
    }
    assert value["tensors"] == [6] and value["keys"] == [len(value["key-length"])]
    assert set(value["dimensions"]) == {2} and set(value["dimension"]) == {4, 256}
    assert set(value["tensor-type"]) == {0, 1, 30, 8, 2, 7}
    assert max(value["elements"]) == 1000 and max(value["text-length"]) == 7000
    assert {n.what for n in parts.numbers} == {COUNT, TYPE}


@pytest.fixture(scope="module")
def head(sound: dict[str, Path]) -> tuple[bytes, int]:
    """Returns an intact file's content and the offset of its weights."""
    return sound["every"].read_bytes(), map_of(sound["every"]).data


@given(data=st.data())
def test_randomly_changed_header_bytes_are_read_or_refused(
    head: tuple[bytes, int], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content, weights = bytearray(head[0]), head[1]
    for at in data.draw(st.lists(st.integers(0, weights - 1), min_size=1, max_size=6)):
        content[at] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(len(content) // 2, len(content))) :]
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    path.write_bytes(content)
    for use in (read_all, unpack):
        try:
            use(path)
        except BadInput as error:
            check(error)


@given(content=st.binary(max_size=200))
def test_random_bytes_after_the_gguf_magic_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "begun.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + content)
    try:
        read_all(path)
    except BadInput as error:
        check(error)
