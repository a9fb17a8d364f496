"""FunASR checkpoint directories: which files they name, as in the original code, and errors for damaged ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_checkpoints import change_config, tiny_paraformer, tiny_sensevoice
from workbench.core.errors import BadInput
from workbench.families import family_of
from workbench.families.funasr import is_funasr_directory, read_checkpoint
from workbench.families.sanm.paraformer import read_paraformer
from workbench.families.sanm.sensevoice import read_sensevoice

Config = dict[str, Any]
FAMILIES = pytest.mark.parametrize(
    ("write", "read"), [(tiny_sensevoice, read_sensevoice), (tiny_paraformer, read_paraformer)]
)


def configuration(directory: Path, metas: Any) -> None:
    (directory / "configuration.json").write_text(json.dumps({"file_path_metas": metas}))


def sentence(error: pytest.ExceptionInfo[BadInput]) -> str:
    text = str(error.value)
    assert "\n" not in text and "Traceback" not in text and 20 < len(text) < 400
    return text


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tiny_sensevoice(tmp_path / "it")


# Which files ---------------------------------------------------------------------------------------------------------


def test_default_file_names_are_used_without_configuration_json(directory: Path) -> None:
    for name in ("am.mvn", "tokens.txt", "seg_dict", "bpe.model"):
        (directory / name).touch()
    checkpoint = read_checkpoint(directory)
    assert checkpoint.weights == directory / "model.pt"
    assert checkpoint.file("frontend_conf", "cmvn_file") == directory / "am.mvn"
    assert checkpoint.file("tokenizer_conf", "token_list") == directory / "tokens.json"  # before tokens.txt
    assert checkpoint.file("tokenizer_conf", "bpemodel") == directory / "bpe.model"
    assert checkpoint.file("tokenizer_conf", "nothing") is None


def test_configuration_json_takes_precedence_over_yaml_and_default_names(directory: Path) -> None:
    change_config(directory, lambda config: config["frontend_conf"].update(cmvn_file=None, dither=0.5))
    for name in ("am.mvn", "other.mvn", "other.pt"):
        (directory / name).touch()
    configuration(
        directory,
        {
            "init_param": "other.pt",
            "config": "config.yaml",
            "frontend_conf": {"cmvn_file": "other.mvn"},
            "tokenizer_conf": {"bpemodel": "absent.model"},
        },
    )
    checkpoint = read_checkpoint(directory)
    assert checkpoint.weights == directory / "other.pt"
    assert checkpoint.file("frontend_conf", "cmvn_file") == directory / "other.mvn"
    assert checkpoint.section("frontend_conf")["dither"] == 0.5
    assert checkpoint.file("tokenizer_conf", "bpemodel") is None  # configured but absent: the original omits it too


def test_configuration_json_may_name_every_file(directory: Path) -> None:
    (directory / "config.yaml").rename(directory / "my.yaml")
    (directory / "model.pt").rename(directory / "weights.pt")
    (directory / "tokens.json").rename(directory / "pieces.json")
    files = {"init_param": "weights.pt", "config": "my.yaml", "tokenizer_conf": {"token_list": "pieces.json"}}
    configuration(directory, files)
    assert family_of(directory).name == "sensevoice"
    checkpoint = read_sensevoice(directory).checkpoint
    assert (checkpoint.weights.name, checkpoint.described_in) == ("weights.pt", "it/my.yaml")
    (directory / "config.yaml").write_text("model: Other\n")  # the named file comes before it, as in the original
    assert read_checkpoint(directory).model == "SenseVoiceSmall"


@pytest.mark.parametrize("name", ["../it/config.yaml", "/etc/passwd", "a\\..\\..\\b", "C:\\b", "sub/../../b"])
@pytest.mark.parametrize("key", ["config", "tokenizer_conf"])
def test_configuration_json_stays_inside_the_directory(name: str, key: str, directory: Path) -> None:
    configuration(directory, {key: name if key == "config" else {"token_list": name}})
    with pytest.raises(BadInput) as error:
        family_of(directory)
    assert f"it/configuration.json names the file {name}, which is outside the directory" in sentence(error)


def test_training_output_uses_the_cmvn_file_of_its_yaml(directory: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "published.mvn"
    elsewhere.touch()
    change_config(directory, lambda config: config["frontend_conf"].update(cmvn_file=str(elsewhere)))
    configuration(directory, {"config": "config.yaml", "frontend_conf": {"cmvn_file": "am.mvn"}})
    assert read_checkpoint(directory).file("frontend_conf", "cmvn_file") == elsewhere


def test_configuration_json_may_begin_with_a_byte_order_mark(directory: Path) -> None:
    metas = {"file_path_metas": {"config": "config.yaml"}}
    (directory / "configuration.json").write_text(json.dumps(metas), encoding="utf-8-sig")
    assert read_checkpoint(directory).model == "SenseVoiceSmall"


def test_missing_cmvn_file_named_in_configuration_json_is_refused(directory: Path) -> None:
    configuration(directory, {"frontend_conf": {"cmvn_file": "am.mvn"}})
    with pytest.raises(BadInput) as error:
        read_checkpoint(directory)
    assert "it/configuration.json names frontend_conf.cmvn_file = am.mvn, and there is no such file" in sentence(error)
    assert "copy it from where the checkpoint was published" in sentence(error)


def test_configuration_json_without_a_cmvn_file_disables_cmvn(directory: Path) -> None:
    (directory / "am.mvn").touch()
    configuration(directory, {"init_param": "model.pt", "config": "config.yaml"})
    assert read_checkpoint(directory).file("frontend_conf", "cmvn_file") is None


@pytest.mark.parametrize("metas", [{}, [], "none", None])
def test_configuration_json_without_files_uses_default_names(metas: Any, directory: Path) -> None:
    (directory / "am.mvn").touch()
    configuration(directory, metas)
    assert read_checkpoint(directory).file("frontend_conf", "cmvn_file") == directory / "am.mvn"


def test_unknown_weights_path_falls_back_to_model_pt(directory: Path) -> None:
    change_config(directory, lambda config: config.update(init_param="/nfs/training/exp/model.pt.best"))
    configuration(directory, {"config": "config.yaml"})
    assert read_checkpoint(directory).weights == directory / "model.pt"


def test_training_output_has_its_own_weights_not_those_that_it_began_with(directory: Path, tmp_path: Path) -> None:
    elsewhere, best = tmp_path / "base.pt", directory / "model.pt.best"
    elsewhere.touch()
    change_config(directory, lambda config: config.update(init_param=str(elsewhere)))
    assert read_checkpoint(directory).weights == directory / "model.pt"
    (directory / "model.pt").unlink()
    assert read_checkpoint(directory).weights == elsewhere
    best.touch()
    (directory / "model.pt.ep1").touch()
    with pytest.raises(BadInput) as error:
        read_checkpoint(directory)
    assert sentence(error).endswith("model.safetensors in it; rename one of model.pt.best, model.pt.ep1")
    change_config(directory, lambda config: config.update(init_param=str(best)))
    assert read_checkpoint(directory).weights == best


@pytest.mark.parametrize(
    ("write", "family"),
    [(tiny_sensevoice, "sensevoice"), (tiny_paraformer, "paraformer")],
    ids=["sensevoice", "paraformer"],
)
def test_checkpoint_directories_are_recognised_by_family(
    write: Callable[[Path], Path], family: str, tmp_path: Path
) -> None:
    assert family_of(write(tmp_path / "it")).name == family


# Broken directories --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [read_checkpoint, read_sensevoice, read_paraformer, family_of])
def test_missing_directory_or_configuration_is_refused(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        read(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput) as error:
        read(tmp_path / "empty")
    assert sentence(error).startswith("checkpoint directory empty ") and "config.yaml" in sentence(error)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no mapping"),
        (b"- a\n- b\n", "holds no mapping"),
        (b"just words", "holds no mapping"),
        (b"a: [1, 2\nb: 3\n", "is not valid YAML"),
        (b"\tmodel: x", "is not valid YAML"),
        (b"model: !!python/object/apply:os.system ['true']\n", "is not valid YAML"),
        (b"when: 2024-99-99\n", "is not valid YAML"),
        (b"[" * 5000, "is not valid YAML"),
        (b"\xff\xfe\x00\x01", "cannot be read"),
    ],
    ids=["empty", "list", "text", "unclosed", "tab", "code", "date", "deep", "bytes"],
)
def test_invalid_config_yaml_raises_one_line_error(content: bytes, message: str, directory: Path) -> None:
    (directory / "config.yaml").write_bytes(content)
    with pytest.raises(BadInput) as error:
        read_sensevoice(directory)
    assert f"it/config.yaml {message}" in sentence(error)
    assert not is_funasr_directory(directory, ("SenseVoiceSmall",))


def test_yaml_syntax_error_names_the_line(directory: Path) -> None:
    (directory / "config.yaml").write_text("model: SenseVoiceSmall\nencoder_conf: [1\nx: y: z\n")
    with pytest.raises(BadInput, match=r"in line \d$"):
        read_checkpoint(directory)


@pytest.mark.parametrize("content", ["{", "[1]", "7", "", '"x"'])
def test_damaged_configuration_json_is_refused(content: str, directory: Path) -> None:
    (directory / "configuration.json").write_text(content)
    with pytest.raises(BadInput) as error:
        read_checkpoint(directory)
    assert "it/configuration.json" in sentence(error)


def test_names_too_long_for_a_file_are_those_of_missing_files(directory: Path) -> None:
    change_config(directory, lambda config: config.update({"init_param": "w" * 400}))
    assert read_checkpoint(directory).weights.name == "model.pt"
    change_config(directory, lambda config: config["frontend_conf"].update({"cmvn_file": "c" * 400}))
    (directory / "am.mvn").unlink(missing_ok=True)
    with pytest.raises(BadInput) as error:
        read_sensevoice(directory)
    assert "names frontend_conf.cmvn_file = ccc" in sentence(error)
    configuration(directory, {"frontend_conf": {"cmvn_file": "d" * 400}})
    with pytest.raises(BadInput) as error:
        read_sensevoice(directory)
    assert "and there is no such file beside it" in sentence(error)


def test_missing_weights_are_refused(directory: Path) -> None:
    (directory / "model.pt").unlink()
    with pytest.raises(BadInput) as error:
        read_sensevoice(directory)
    assert sentence(error) == "checkpoint directory it has no weights; expected model.pt or model.safetensors in it"


def test_weights_may_be_a_safetensors_file(directory: Path) -> None:
    (directory / "model.safetensors").touch()
    assert read_checkpoint(directory).weights.name == "model.pt"
    (directory / "model.pt").unlink()
    assert read_checkpoint(directory).weights.name == "model.safetensors"


def test_missing_cmvn_file_named_in_config_yaml_is_refused(directory: Path) -> None:
    change_config(directory, lambda config: config["frontend_conf"].update(cmvn_file="gone.mvn"))
    with pytest.raises(BadInput) as error:
        read_sensevoice(directory)
    assert "names frontend_conf.cmvn_file = gone.mvn, and there is no such file" in sentence(error)


@pytest.mark.parametrize(
    ("key", "value"), [("lfr_n", -1), ("window", "x" * 1000), ("frame_shift", [[5]] * 1000), ("snip_edges", "x" * 1000)]
)
def test_value_of_the_front_end_is_refused_with_the_file_and_a_short_quote(
    key: str, value: Any, directory: Path
) -> None:
    change_config(directory, lambda config: config["frontend_conf"].update({key: value}))
    with pytest.raises(BadInput) as error:
        read_checkpoint(directory).frontend()
    assert sentence(error).startswith(f"it/config.yaml: frontend_conf.{key} is ") and len(sentence(error)) < 250


@pytest.mark.parametrize("section", ["encoder_conf", "frontend_conf", "model_conf", "tokenizer_conf"])
def test_config_sections_that_are_not_mappings_are_refused(section: str, directory: Path) -> None:
    change_config(directory, lambda config: config.update({section: "none"}))
    configuration(directory, {"config": "config.yaml"})
    with pytest.raises(BadInput) as error:
        read_sensevoice(directory)
    assert f"{section} in it/config.yaml is str; expected a mapping" in sentence(error)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("output_size", None, "encoder_conf.output_size in config.yaml is None"),
        ("output_size", "16", "is '16'; expected a whole number from 1"),
        ("output_size", 0, "is 0; expected"),
        ("output_size", 17, "output_size 17 in config.yaml is not a multiple of attention_heads 2"),
        ("attention_heads", 3, "not a multiple of attention_heads 3"),
        ("attention_heads", -1, "attention_heads in config.yaml is -1"),
        ("linear_units", 2.5, "linear_units in config.yaml is 2.5"),
        ("linear_units", True, "linear_units in config.yaml is True"),
        ("num_blocks", 0, "num_blocks in config.yaml is 0"),
        ("num_blocks", 10**9, "expected a whole number from 1 to 1000"),
        ("tp_blocks", -1, "tp_blocks in config.yaml is -1"),
        ("kernel_size", [11], "kernel_size in config.yaml is [11]"),
        ("sanm_shfit", 3, "sanm_shfit 3 is beyond half of kernel_size 5"),
        ("input_layer", "conv2d", "input_layer in config.yaml is 'conv2d'; only 'pe' is supported"),
        ("normalize_before", False, "normalize_before in config.yaml is False"),
        ("selfattention_layer_type", "selfattn", "only 'sanm' is supported"),
    ],
)
@FAMILIES
def test_invalid_encoder_values_are_refused(
    key: str, value: Any, message: str, write: Callable[[Path], Path], read: Callable[[Path], Any], tmp_path: Path
) -> None:
    checkpoint = write(tmp_path / "it")
    change_config(checkpoint, lambda config: config["encoder_conf"].update({key: value}))
    with pytest.raises(BadInput) as error:
        read(checkpoint)
    assert message in sentence(error)


@pytest.mark.parametrize("key", ["output_size", "attention_heads", "linear_units", "num_blocks"])
def test_missing_encoder_dimensions_are_refused(key: str, directory: Path) -> None:
    change_config(directory, lambda config: config["encoder_conf"].pop(key))
    with pytest.raises(BadInput) as error:
        read_sensevoice(directory)
    assert f"encoder_conf.{key} in config.yaml is missing; expected a whole number" in sentence(error)


@pytest.mark.parametrize(("bands", "stacked"), [(23, 7), (3, 1), (2, 1)])
@FAMILIES
def test_frames_that_leave_no_room_for_positions_are_refused(
    bands: int, stacked: int, write: Callable[[Path], Path], read: Callable[[Path], Any], tmp_path: Path
) -> None:
    it = write(tmp_path / "it")
    change_config(it, lambda config: config["frontend_conf"].update({"n_mels": bands, "lfr_m": stacked}))
    with pytest.raises(BadInput) as error:
        read(it)
    assert f"n_mels and lfr_m in config.yaml give {bands * stacked} values per frame" in sentence(error)


def test_memory_with_an_even_kernel_may_look_back_only(directory: Path) -> None:
    change_config(directory, lambda config: config["encoder_conf"].update({"kernel_size": 6, "sanm_shfit": 3}))
    assert read_sensevoice(directory).encoder.sanm_shift == 3


@FAMILIES
def test_tokens_may_be_listed_in_the_configuration(
    write: Callable[[Path], Path], read: Callable[[Path], Any], tmp_path: Path
) -> None:
    it = write(tmp_path / "it")
    pieces = list(read(it).vocabulary.pieces)
    (it / "tokens.json").unlink()
    change_config(it, lambda config: config.update({"tokenizer_conf": {"token_list": pieces}}))
    assert list(read(it).vocabulary.pieces) == pieces
    for value, says in (([1, 2], "token_list in it/config.yaml is not a list of tokens"), ({}, "is {}; expected the")):
        change_config(it, lambda config, value=value: config.update({"tokenizer_conf": {"token_list": value}}))
        with pytest.raises(BadInput) as error:
            read(it)
        assert says in sentence(error)


@pytest.mark.parametrize("name", [None, "WavFrontend", "wav_frontend", "WavFrontendOnline"])
def test_known_frontend_names_are_accepted(name: str | None, directory: Path) -> None:
    change_config(directory, lambda config: config.update(frontend=name, normalize=None))
    assert read_sensevoice(directory).frontend.width == 560


@FAMILIES
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("frontend", "WhisperFrontend", "frontend in it/config.yaml is 'WhisperFrontend'; only WavFrontend, wav_fr"),
        ("frontend", ["WavFrontend"], "frontend in it/config.yaml is ['WavFrontend']; only"),
        (
            "normalize",
            "UtteranceMVN",
            "normalize in it/config.yaml is 'UtteranceMVN'; only normalisation by a",
        ),
    ],
)
def test_unsupported_frontend_settings_are_refused(
    key: str, value: Any, message: str, write: Callable[[Path], Path], read: Callable[[Path], Any], tmp_path: Path
) -> None:
    checkpoint = write(tmp_path / "it")
    change_config(checkpoint, lambda config: config.update({key: value}))
    with pytest.raises(BadInput) as error:
        read(checkpoint)
    assert message in sentence(error)


def test_config_of_another_model_is_refused(directory: Path) -> None:
    change_config(directory, lambda config: config.update(model="Whisper"))
    with pytest.raises(BadInput) as error:
        read_sensevoice(directory)
    assert "is for model 'Whisper'; expected SenseVoiceSmall" in sentence(error)
    with pytest.raises(BadInput, match=r"it/config\.yaml names Whisper, which belongs to none of the families here"):
        family_of(directory)


@pytest.mark.parametrize("model", [None, 7, ["SenseVoiceSmall"], {"a": 1}])
def test_model_name_that_is_not_a_known_string_is_refused(model: Any, directory: Path) -> None:
    change_config(directory, lambda config: config.update(model=model))
    assert not is_funasr_directory(directory, ("SenseVoiceSmall", "Paraformer"))
    with pytest.raises(BadInput):
        family_of(directory)


def test_named_pipe_as_config_yaml_is_refused_without_waiting(tmp_path: Path) -> None:
    """Reading a named pipe would block forever."""
    os.mkfifo(tmp_path / "config.yaml")
    (tmp_path / "model.pt").write_bytes(b"")
    with pytest.raises(BadInput) as raised:
        family_of(tmp_path)
    assert len(str(raised.value)) < 1000
