"""A directory for vLLM is written completely or not at all, with one weight file or several."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from tests.support.tiny_language import tiny_language  # noqa: E402
from workbench.conversion.language_weights import read_language_weights  # noqa: E402
from workbench.conversion.vllm_checkpoint import directory as served  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import VllmCheckpoint, write_directory  # noqa: E402
from workbench.conversion.vllm_checkpoint.tensors import stored_tensor  # noqa: E402
from workbench.core.errors import BadInput, Cancelled  # noqa: E402
from workbench.families.language.directory import AUDIO, LanguageTokenizer, read_language_config  # noqa: E402
from workbench.system.atomic_files import check_directory  # noqa: E402

TENSORS = {f"layer {number}": torch.arange(10.0) + number for number in range(5)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> VllmCheckpoint:
    language = read_language_config(tiny_language(tmp_path_factory.mktemp("language") / "tiny"))
    return VllmCheckpoint(
        family="funasr_nano",
        language=language,
        tensors=[stored_tensor(name, value) for name, value in TENSORS.items()],
        where="the test",
        architecture="Ours",
        config={"hidden_size": 99, "ear": {"width": 3}},
        section={"more": 1},
        special_tokens=(AUDIO,),
        chat_template="{{ messages }}",
        files={"other.bin": b"\0\1"},
    )


def test_vllm_directory_contains_configuration_tokenizer_and_weights(model: VllmCheckpoint, tmp_path: Path) -> None:
    fractions: list[float] = []
    write_directory(model, tmp_path / "it", lambda fraction, _: fractions.append(fraction))
    out = tmp_path / "it"
    config = json.loads((out / "config.json").read_text())
    own = json.loads((model.language.directory / "config.json").read_text())
    tokens = len(LanguageTokenizer.read(model.language.directory))
    section = {"format": 1, "family": "funasr_nano", "token_ids": {AUDIO: tokens}, "more": 1}
    changed = {"architectures": ["Ours"], "hidden_size": 99, "ear": {"width": 3}, "speech_workbench": section}
    assert config == own | changed
    assert (out / "other.bin").read_bytes() == b"\0\1" and not (out / "preprocessor_config.json").exists()
    assert (out / "generation_config.json").is_file()
    read, _ = read_language_weights(out)
    assert read.keys() == TENSORS.keys() and all(torch.equal(read[name], value) for name, value in TENSORS.items())
    assert fractions == sorted(fractions) and fractions[-1] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_vllm_tokenizer_has_one_additional_audio_token(model: VllmCheckpoint, tmp_path: Path) -> None:
    write_directory(model, tmp_path / "it")
    text = "<|im_start|>user\nthree 七<|im_end|>\n"
    before, after = (LanguageTokenizer.read(place) for place in (model.language.directory, tmp_path / "it"))
    ids = after.encode(f"{text}{AUDIO}{text}")
    assert ids == [*before.encode(text), len(before), *before.encode(text)]
    assert after.decode(ids) == before.decode(before.encode(text + text)) and len(after) == len(before) + 1
    reread = replace(model, language=read_language_config(tmp_path / "it"))
    write_directory(reread, tmp_path / "again")  # which has the token already
    assert len(LanguageTokenizer.read(tmp_path / "again")) == len(after)


def test_large_weights_are_split_into_shards(
    model: VllmCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "SHARD_BYTES", 80)
    write_directory(model, tmp_path / "it")
    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert sorted(path.name for path in (tmp_path / "it").glob("*.safetensors")) == names
    read, _ = read_language_weights(tmp_path / "it")
    assert read.keys() == TENSORS.keys() and all(torch.equal(read[name], value) for name, value in TENSORS.items())


@pytest.mark.parametrize("error", [Cancelled, KeyboardInterrupt])
def test_interrupted_writing_leaves_no_files_in_the_directory(
    error: type[BaseException], model: VllmCheckpoint, tmp_path: Path
) -> None:
    def stop(fraction: float, _activity: str) -> None:
        if fraction > 0.5:
            raise error

    (tmp_path / "it").mkdir()
    with pytest.raises(error):
        write_directory(model, tmp_path / "it", stop)
    assert [path.name for path in tmp_path.iterdir()] == ["it"] and not list((tmp_path / "it").iterdir())


def test_invalid_output_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for out, message in (
        (tmp_path / "full", "is a directory with files in it"),
        (tmp_path / "full" / "file", "is a file; expected the name of a new directory"),
        (tmp_path / "no" / "it", "there is no folder"),
        (Path("/"), "is not the name of a directory"),
    ):
        with pytest.raises(BadInput, match=message):
            check_directory(out)
    check_directory(tmp_path / "it")
