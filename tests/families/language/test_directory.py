"""A language model's directory without weights: configuration and tokenizer, and errors for invalid ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_language import CONTEXT, VOCABULARY, change_json, put_tokenizer, tiny_language
from workbench.core.errors import BadInput
from workbench.families.language.directory import (
    FULL,
    MODEL_TYPES,
    SLIDING,
    UNFOLLOWED,
    LanguageTokenizer,
    is_language_directory,
    read_language_config,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_language(tmp_path_factory.mktemp("language") / "it")


@pytest.fixture
def directory(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that the test may damage."""
    return shutil.copytree(checkpoint, tmp_path / "it")


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> LanguageTokenizer:
    return LanguageTokenizer.read(checkpoint)


# The configuration.


def test_language_configuration_is_read(directory: Path) -> None:
    config = read_language_config(directory)
    assert (config.model_type, config.hidden_size, config.layers) == ("qwen3", 32, 3)
    assert (config.vocabulary, config.context, config.pad_id) == (VOCABULARY, CONTEXT, 456)
    assert is_language_directory(directory)


@pytest.mark.parametrize(
    ("config", "generation", "stops"),
    [
        (458, None, (458,)),
        ([456, 458], None, (456, 458)),
        (458, 456, (458, 456)),
        (458, [458, 456], (458, 456)),
        (None, [1, 2], (1, 2)),
        (None, None, ()),
        (True, "2", ()),
        (-1, [VOCABULARY, 7, VOCABULARY - 1], (7, VOCABULARY - 1)),
    ],
)
def test_stop_tokens_are_read_from_config_and_generation_config(
    directory: Path, config: Any, generation: Any, stops: tuple[int, ...]
) -> None:
    (directory / "generation_config.json").unlink(missing_ok=True)
    change_json(directory / "config.json", eos_token_id=config)
    if generation is not None:
        (directory / "generation_config.json").write_text("{}")
        change_json(directory / "generation_config.json", eos_token_id=generation)
    assert read_language_config(directory).stop_ids == stops


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        *(("qwen3", key, 0.5) for key in UNFOLLOWED),
        ("llama", "rope_scaling", {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}),
        ("llama", "sliding_window", CONTEXT // 2),
        ("llama", "layer_types", [FULL, SLIDING, FULL]),
        ("mistral", "layer_types", [SLIDING, SLIDING, FULL]),
    ],
)
def test_unsupported_config_keys_are_refused(directory: Path, kind: str, key: str, value: Any) -> None:
    window = {"sliding_window": 8} if kind == "mistral" else {}
    change_json(directory / "config.json", model_type=kind, **{**window, key: value})
    expected_key = "partial_rotary_factor" if key == "rope_scaling" else key
    with pytest.raises(
        BadInput, match=rf"^{expected_key} in it/config\.json is .*, which networks of type {kind} ignore"
    ):
        read_language_config(directory)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
            "rope_type in it/config.json is 'mrope'; supp",
        ),
        ({"rope_parameters": {"rope_type": "ntk"}}, "rope_type in it/config.json is 'ntk'; supported are default, lin"),
        ({"layer_types": [FULL, SLIDING, FULL], "sliding_window": 4}, "layer_types in it/config.json has sliding_att"),
        (
            {"layer_types": [SLIDING] * 3, "use_sliding_window": True, "sliding_window": 0},
            "layer_types in it/config.json has sliding_attention without a window",
        ),
    ],
)
def test_settings_that_transformers_cannot_compute_are_refused(
    directory: Path, changes: dict[str, Any], problem: str
) -> None:
    change_json(directory / "config.json", model_type="qwen3", rope_parameters=None)
    change_json(directory / "config.json", **changes)
    with pytest.raises(BadInput) as caught:
        read_language_config(directory)
    assert str(caught.value).startswith(problem)


def test_directory_with_a_change_to_its_weights_is_refused(directory: Path) -> None:
    (directory / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "lora_alpha": 8}')
    with pytest.raises(BadInput, match=r"^it has adapter_config\.json, a change to its weights that is not added"):
        read_language_config(directory)


def test_language_model_with_bidirectional_attention_is_refused(directory: Path) -> None:
    change_json(directory / "config.json", is_causal=False)
    with pytest.raises(BadInput, match=r"^is_causal in it/config\.json is False; only models that write"):
        read_language_config(directory)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "qwen3", "partial_rotary_factor": 1.0, "use_sliding_window": False, "sliding_window": 4},
        {"model_type": "qwen2", "layer_types": [FULL, SLIDING, SLIDING], "use_sliding_window": True},
        {"model_type": "llama", "sliding_window": CONTEXT, "layer_types": [FULL] * 3, "logit_scale": None},
        {"model_type": "mistral", "sliding_window": 4, "layer_types": [SLIDING] * 3},
        {"model_type": "mistral", "sliding_window": None, "layer_types": [FULL] * 3},
    ],
)
def test_harmless_and_supported_config_keys_are_accepted(directory: Path, changes: dict[str, Any]) -> None:
    change_json(directory / "config.json", **changes)
    assert read_language_config(directory).layers == 3


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"])
@pytest.mark.parametrize(
    ("value", "quoted"), [(None, "missing"), (0, "0"), ("many", "'many'"), (True, "True"), (1.5, "1.5")]
)
def test_missing_or_invalid_size_is_refused(directory: Path, key: str, value: Any, quoted: str) -> None:
    change_json(directory / "config.json", **{key: value})
    with pytest.raises(BadInput) as caught:
        read_language_config(directory)
    assert str(caught.value) == f"{key} in it/config.json is {quoted}; expected a whole number of at least 1"


def test_unknown_model_type_is_refused(directory: Path) -> None:
    change_json(directory / "config.json", model_type="mamba")
    assert not is_language_directory(directory)
    with pytest.raises(
        BadInput, match=rf"^it/config\.json is of model type 'mamba'; expected {', '.join(MODEL_TYPES)}$"
    ):
        read_language_config(directory)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{", "it/config.json cannot be read as JSON: "), ("[1]", "it/config.json holds a list; expected a JSON object")],
)
def test_damaged_config_json_raises_one_line_error(directory: Path, content: str, sentence: str) -> None:
    (directory / "config.json").write_text(content)
    assert not is_language_directory(directory)
    with pytest.raises(BadInput) as caught:
        read_language_config(directory)
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)


def test_missing_config_json_is_refused(directory: Path) -> None:
    (directory / "config.json").unlink()
    assert not is_language_directory(directory)
    with pytest.raises(BadInput, match=r"^language model directory it has no config\.json$"):
        read_language_config(directory)
    with pytest.raises(BadInput, match=r"^there is no language model directory .*nowhere$"):
        read_language_config(directory / "nowhere")


# The tokenizer.


def test_missing_tokenizer_is_refused(directory: Path) -> None:
    for name in ("tokenizer.json", "vocab.json"):
        (directory / name).unlink()
    with pytest.raises(
        BadInput, match=r"^language model directory it has no tokenizer; expected tokenizer\.json or vocab"
    ):
        LanguageTokenizer.read(directory)


def test_damaged_tokenizer_raises_one_line_error(directory: Path) -> None:
    (directory / "tokenizer.json").write_text("{")
    with pytest.raises(BadInput, match=r"^the tokenizer in it cannot be read: ") as caught:
        LanguageTokenizer.read(directory)
    assert "\n" not in str(caught.value)


def test_file_of_mistral_common_does_not_replace_the_tokenizer(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "it", "mistral")
    put_tokenizer(directory)
    expected = LanguageTokenizer.read(directory)
    (directory / "tekken.json").write_text("{}")  # transformers prefers it where mistral-common is installed
    tokenizer = LanguageTokenizer.read(directory)
    assert tokenizer.encode("a<|fim_pad|>b") == expected.encode("a<|fim_pad|>b") and tokenizer.has_chat_template


def test_special_token_in_text_is_encoded_as_one_id(tokenizer: LanguageTokenizer) -> None:
    end = tokenizer.id_of("<|im_end|>")
    assert end is not None and tokenizer.encode("seven<|im_end|>") == [*tokenizer.encode("seven"), end]
    assert tokenizer.decode([*tokenizer.encode("seven"), end]) == "seven"
    assert tokenizer.decode([*tokenizer.encode("seven"), end], special=True) == "seven<|im_end|>"
    assert tokenizer.piece(end) == "<|im_end|>" and tokenizer.id_of("<|nothing|>") is None


def test_text_longer_than_the_model_allows_is_encoded_without_a_warning_of_transformers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    put_tokenizer(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", model_max_length=3)
    for encode in (LanguageTokenizer.read_fast(tmp_path).encode_plain, LanguageTokenizer.read_fast(tmp_path).encode):
        assert len(encode("one two three four five")) > 3
    assert "longer than" not in capfd.readouterr().err


def test_missing_special_tokens_are_added(directory: Path) -> None:
    plain = LanguageTokenizer.read(directory)
    more = LanguageTokenizer.read(directory, ["<speech>", "<|im_end|>"])
    assert more.id_of("<speech>") == len(plain) and len(more) == len(plain) + 1
    assert more.id_of("<|im_end|>") == plain.id_of("<|im_end|>")


def test_ids_without_a_token_decode_to_empty_text(tokenizer: LanguageTokenizer) -> None:
    assert tokenizer.decode([VOCABULARY - 1, *tokenizer.encode("two"), VOCABULARY + 5, -1]) == "two"


def test_ids_may_have_gaps(directory: Path) -> None:
    path = directory / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["zq"] = VOCABULARY - 1
    content["model"]["merges"].append(["z", "q"])
    path.write_text(json.dumps(content))
    tokenizer = LanguageTokenizer.read(directory)
    assert tokenizer.decode(tokenizer.encode("a zq zqz")) == "a zq zqz" and VOCABULARY - 1 in tokenizer.encode("zq")
    tokenizer.check_room(read_language_config(directory))
    change_json(directory / "config.json", vocab_size=VOCABULARY - 1)
    sentence = f"^the tokenizer in it has ids up to {VOCABULARY - 1}; its config.json has room for {VOCABULARY - 1}$"
    with pytest.raises(BadInput, match=sentence):
        tokenizer.check_room(read_language_config(directory))


@given(st.text())
def test_encoded_text_decodes_to_the_same_text(tokenizer: LanguageTokenizer, text: str) -> None:
    """Except Unicode composition, which the tokenizer normalises, and text that looks like a special token."""
    import unicodedata

    text = unicodedata.normalize("NFC", text.replace("<", ""))
    assert tokenizer.decode(tokenizer.encode(text), special=True) == text


def test_conversation_is_formatted_by_the_chat_template(tokenizer: LanguageTokenizer) -> None:
    assert tokenizer.has_chat_template
    assert tokenizer.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tokenizer_without_a_template_reports_no_chat_template(tmp_path: Path) -> None:
    put_tokenizer(tmp_path / "it")
    change_json(tmp_path / "it" / "tokenizer_config.json", chat_template=None)
    assert not LanguageTokenizer.read(tmp_path / "it").has_chat_template


@pytest.mark.parametrize("names", [("default", "tool_use"), ("tool_use", "rag")])
def test_template_named_default_is_the_one_of_several(names: tuple[str, str], tmp_path: Path) -> None:
    put_tokenizer(tmp_path / "it")
    templates = [{"name": name, "template": f"{name}: {{{{ messages[0].content }}}}"} for name in names]
    change_json(tmp_path / "it" / "tokenizer_config.json", chat_template=templates)
    tokenizer = LanguageTokenizer.read(tmp_path / "it")
    if "default" in names:
        assert tokenizer.chat_template == "default: {{ messages[0].content }}"
        assert tokenizer.chat([{"role": "user", "content": "x"}]) == "default: x"
    else:
        assert tokenizer.chat_template is None
