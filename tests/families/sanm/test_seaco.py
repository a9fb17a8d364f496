"""SeACo's hotwords as token ids, and the configuration of the branch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.reference.checkpoints import SMALL_PARAFORMER, write_paraformer
from tests.support.tiny_checkpoints import change_config
from workbench.core.errors import BadInput
from workbench.families import FAMILIES
from workbench.families.sanm.decoder import DecoderConfig
from workbench.families.sanm.paraformer import ParaformerModel, ParaformerOptions, SeacoOptions, read_paraformer
from workbench.families.sanm.seaco import FILTERED, MAX_HOTWORDS, SeacoConfig
from workbench.families.vocabularies.funasr import Vocabulary
from workbench.runtimes.pytorch.paraformer import open_paraformer

VOCABULARY = Vocabulary(["<blank>", "<s>", "</s>", "hel@@", "lo", "魔", "搭", "a", "i", "3", "Rome", "<unk>"], "it")
CONFIG = SeacoConfig(16, False, DecoderConfig(2, 16, 6, 6, 5, 0), 11, 1, None)
LISTED = replace(CONFIG, segment_text="hello hel@@ lo\n魔 魔\n搭 搭\na a\ni i\n3 3\nempty\n")


def pieces(config: SeacoConfig, *hotwords: str) -> list[list[str]]:
    return [[VOCABULARY.pieces[number] for number in ids] for ids in config.ids(hotwords, VOCABULARY)]


def test_hotwords_end_with_the_start_symbol() -> None:
    assert pieces(LISTED, "魔搭", "hello") == [["魔", "搭"], ["hel@@", "lo"], ["<s>"]]


@pytest.mark.parametrize("hotwords", [(), ("",), (" ", "\t")])
def test_empty_hotwords_are_none(hotwords: tuple[str, ...]) -> None:
    assert CONFIG.ids(hotwords, VOCABULARY) == ()


@pytest.mark.parametrize(
    ("hotword", "expected"),
    [
        ("HELLO", ["hel@@", "lo"]),
        ("hello 魔搭", ["hel@@", "lo", "魔", "搭"]),
        ("ai魔搭3", ["a", "i", "魔", "搭", "3"]),
        ("hello魔", ["hel@@", "lo", "魔"]),
    ],
)
def test_listed_words_and_characters_are_spelled(hotword: str, expected: list[str]) -> None:
    assert pieces(LISTED, hotword)[0] == expected


def test_without_a_list_words_are_pieces_or_characters() -> None:
    assert pieces(CONFIG, "Rome", "魔搭", "AI") == [["Rome"], ["魔", "搭"], ["a", "i"], ["<s>"]]


@pytest.mark.parametrize(
    ("hotwords", "message"),
    [
        (("魔法",), "hotword '魔法' has '法', which the model's vocabulary does not have"),
        (("a" * 101,), "has 101 tokens; expected at most 100"),
        (("a",) * (MAX_HOTWORDS + 1), "hotwords has 5,001 words; expected at most 5,000"),
    ],
)
def test_hotwords_that_cannot_be_taken_are_refused(hotwords: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        CONFIG.ids(hotwords, VOCABULARY)


def test_decoder_without_a_sixth_layer_takes_what_needs_no_filter() -> None:
    short = replace(CONFIG, decoder=DecoderConfig(2, 16, 5, 5, 5, 0))
    assert len(short.ids(("a",) * (FILTERED - 1), VOCABULARY)) == FILTERED
    with pytest.raises(BadInput, match="expected at most 49"):
        short.ids(("a",) * FILTERED, VOCABULARY)


# Checkpoints ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_paraformer(tmp_path_factory.mktemp("seaco") / "it", SMALL_PARAFORMER, seaco={})


def changed(directory: Path, to: Path, change: Callable[[dict[str, Any]], object]) -> ParaformerModel:
    """Reads the checkpoint with another configuration."""
    to.mkdir()
    for path in directory.iterdir():
        (to / path.name).symlink_to(path)
    config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
    change(config)
    (to / "config.yaml").unlink()
    (to / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return read_paraformer(to)


def test_configuration_is_read(directory: Path) -> None:
    assert FAMILIES["paraformer"].options_class_of(directory) is SeacoOptions
    found = read_paraformer(directory).seaco
    assert found is not None
    assert found.decoder == DecoderConfig(4, 64, 4, 6, 21, 0)  # it has six layers by default, whatever num_blocks says
    assert (found.width, found.no_bias, found.start, found.bidirectional) == (64, 273, 1, False)


def test_top_level_of_the_configuration_comes_before_its_section(directory: Path, tmp_path: Path) -> None:
    found = changed(directory, tmp_path / "it", lambda config: config.update(NO_BIAS=5)).seaco
    assert found is not None and found.no_bias == 5


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("inner_dim", 32, "model_conf.inner_dim in config.yaml is 32; only 64 is supported"),
        ("NO_BIAS", 300, "model_conf.NO_BIAS in config.yaml is 300"),
        ("seaco_decoder", "TransformerDecoder", "'TransformerDecoder'; only 'ParaformerSANMDecoder'"),
        ("seaco_decoder_conf", None, "seaco_decoder_conf in config.yaml is NoneType; expected a mapping"),
        ("seaco_decoder_conf", {"attention_heads": 4}, "use_output_layer in config.yaml is True; only False"),
    ],
)
def test_unsupported_branches_are_refused(directory: Path, tmp_path: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        changed(directory, tmp_path / "it", lambda config: config.update({key: value}))


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(bias_encoder_type="mean"),
        lambda config: config.pop("seaco_decoder"),
    ],
)
def test_branch_that_cannot_be_computed_is_left_out(
    directory: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    pipeline = open_paraformer(changed(directory, tmp_path / "it", change), torch.device("cpu"))
    with pytest.raises(BadInput, match="these weights have no hotword branch"):
        pipeline.model.hotword_ids(["a"])


def test_other_checkpoints_refuse_hotwords(tmp_path: Path) -> None:
    model = read_paraformer(write_paraformer(tmp_path / "it", SMALL_PARAFORMER))
    assert model.hotword_ids([" "]) == ()
    with pytest.raises(BadInput, match="these weights have no hotword branch"):
        model.hotword_ids(["a"])
    assert FAMILIES["paraformer"].options_class_of(tmp_path / "it") is ParaformerOptions


def test_missing_tensor_of_the_branch_is_named(directory: Path, tmp_path: Path) -> None:
    model = changed(directory, tmp_path / "it", lambda config: None)
    tensors = torch.load(directory / "model.pt", weights_only=True)
    del tensors["bias_encoder.weight_hh_l1"]
    (tmp_path / "it" / "model.pt").unlink()
    torch.save(tensors, tmp_path / "it" / "model.pt")
    with pytest.raises(BadInput, match=r"lacks tensor bias_encoder\.weight_hh_l1"):
        open_paraformer(model, torch.device("cpu"))


def test_hotwords_change_some_tokens_and_a_batch_equals_one_at_a_time(directory: Path) -> None:
    from tests.reference.speech import speech

    pipeline = open_paraformer(read_paraformer(directory), torch.device("cpu"))
    chunks = [speech(seconds) for seconds in (2.0, 5.0, 3.0)]
    options = SeacoOptions(hotwords=tuple(f"{a} {b}" for a in "abcdefgh" for b in "abcdefgh"))
    alone = [pipeline.recognise(chunk, options).ids for chunk in chunks]
    assert [each.ids for each in pipeline.recognise_batch(chunks, options)] == alone
    equally_long = [speech(3.0), speech(5.0)[-len(speech(3.0)) :], 0 * speech(3.0)]
    counted = [pipeline.recognise(chunk, options).ids for chunk in equally_long]
    assert [each.ids for each in pipeline.recognise_batch(equally_long, options)] == counted
    assert len({*map(len, counted)}) > 1
    without = [pipeline.recognise(chunk, ParaformerOptions()).ids for chunk in chunks]
    assert any(a != b for a, b in zip(alone, without, strict=True))
    shares = [sum(x == y for x, y in zip(a, b, strict=True)) / len(a) for a, b in zip(alone, without, strict=True)]
    assert all(share > 0 for share in shares), "a token without a hotword stays"


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "broken"])
def test_only_hotwords_need_the_file_of_segments(content: bytes | None, tmp_path: Path) -> None:
    directory = write_paraformer(tmp_path / "it", SMALL_PARAFORMER, seaco={})
    (directory / "configuration.json").unlink()
    (directory / "seg_dict").unlink()
    tokenizer_conf = {"seg_dict_file": "pieces"}
    change_config(
        directory, lambda config: config.update(tokenizer_conf=(config.get("tokenizer_conf") or {}) | tokenizer_conf)
    )
    if content is not None:
        (directory / "pieces").write_bytes(content)
    model = read_paraformer(directory)
    assert model.seaco is not None and model.seaco.ids((), model.vocabulary) == ()
    with pytest.raises(BadInput, match=r"^hotwords need the file of word pieces: it.*pieces.*; copy it from where"):
        model.seaco.ids(("a",), model.vocabulary)
