"""vLLM's chat parser extended with embedding parts: their position in the prompt, and refused messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

import vllm.model_executor.model_loader as model_loader
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import VLLMValidationError
from vllm.renderers import chat_utils

from tests.support.coroutines import finished
from workbench.runtimes.vllm.embedding_parts import chat
from workbench.runtimes.vllm.embedding_parts.content_part import embedding_part, stated_placeholder
from workbench.runtimes.vllm.models.errors import BadRequest
from workbench.runtimes.vllm.plugin import models

PAD = "<|fim_pad|>"
REFUSALS = (BadRequest, VLLMValidationError)


def value(number: float) -> dict[str, Any]:
    """A part whose embedding is one number."""
    return embedding_part(np.array([[number]], dtype=np.float32))


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


@pytest.fixture
def original_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's original parser, also where an engine of another test has patched it in this process."""
    for name in chat.PARAMETERS:
        function = getattr(chat_utils, name)
        monkeypatch.setattr(chat_utils, name, function.__wrapped__ if hasattr(function, chat.WRAPPED) else function)


@pytest.fixture
def patched_parser(original_parser: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's parser with the project's patch, for a model that accepts three embeddings in a prompt."""

    def check(modality: str, count: int) -> None:
        if modality != "embedding" or count > 3:
            raise BadRequest(f"{count} {modality} are too many")

    info = SimpleNamespace(validate_num_items=check)
    processor = SimpleNamespace(info=info)
    monkeypatch.setattr(chat_utils, "MULTIMODAL_REGISTRY", SimpleNamespace(create_processor=lambda _: processor))
    model = SimpleNamespace(get_placeholder_str=lambda modality, number: PAD)
    monkeypatch.setattr(model_loader, "get_model_cls", lambda _: model)
    chat.teach_embeddings()


def configuration(architecture: str = chat.ARCHITECTURE, **config: Any) -> Any:
    return SimpleNamespace(
        hf_config=SimpleNamespace(architectures=[architecture], **config),
        multimodal_config=None,
        enable_prompt_embeds=False,
        is_multimodal_model=True,
        allowed_local_media_path="",
        allowed_media_domains=None,
    )


def parse(
    messages: list[Any], form: str, asynchronous: bool = False, model: Any = None
) -> tuple[list[Any], list[float]]:
    """Returns the contents for the chat template, and the numbers of the embeddings in their order."""
    request = ChatCompletionRequest.model_validate({"model": "it", "messages": messages})
    arguments = (request.messages, model or configuration(), form)
    if asynchronous:
        conversation, data, uuids = finished(chat_utils.parse_chat_messages_async(*arguments))
    else:
        conversation, data, uuids = chat_utils.parse_chat_messages(*arguments)
    items = (data or {}).get("embedding", [])
    assert (uuids or {}).get("embedding", []) == [None] * len(items)
    return [message["content"] for message in conversation], [float(item.values[0, 0]) for item in items]


@pytest.mark.usefixtures("patched_parser")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "content, expected, numbers",
    [
        ([value(1)], PAD, [1]),
        ([value(1), value(2)], PAD + PAD, [1, 2]),
        ([text("a:"), value(1)], f"a:{PAD}", [1]),
        ([value(1), text("a")], f"{PAD}a", [1]),
        ([text("a"), value(1), text("b"), value(2), text("c")], f"a{PAD}b{PAD}c", [1, 2]),
        # vLLM joins adjacent texts with newlines.
        ([text("a"), text("b"), value(1), text("c"), text("d")], f"a\nb{PAD}c\nd", [1]),
        ([text(f"{PAD} and {PAD}"), value(1), value(2)], f"{PAD} and {PAD}", [1, 2]),
        ([value(1), text(f"a{PAD}"), value(2), text(f"b{PAD}")], f"a{PAD}\nb{PAD}", [1, 2]),
        ([text("a")], "a", []),
        ("a", "a", []),
    ],
)
def test_embedding_is_placed_at_its_part_or_its_placeholder(
    content: Any, expected: str, numbers: list[float], asynchronous: bool
) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": content}]
    assert parse(messages, "string", asynchronous) == (["s", expected], numbers)
    [_, content_parts], parsed_numbers = parse(messages, "openai", asynchronous)
    assert parsed_numbers == numbers
    assert all(part["type"] == "text" for part in content_parts)  # templates know no embeddings
    assert "".join(part["text"] for part in content_parts) == expected.replace("\n", "")


@pytest.mark.usefixtures("patched_parser")
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_embeddings_of_several_messages_stay_in_order(role: str) -> None:
    messages = [
        {"role": role, "content": [value(1)]},
        {"role": "assistant", "content": "between"},
        {"role": "user", "content": [text("a"), value(2), text("b")]},
    ]
    assert parse(messages, "string") == ([PAD, "between", f"a{PAD}b"], [1, 2])


@pytest.mark.usefixtures("patched_parser")
def test_the_configuration_names_the_placeholder() -> None:
    model = configuration(speech_workbench={"placeholder": "<|x|>"})
    with pytest.raises(BadRequest) as caught:
        parse([{"role": "user", "content": [{"type": "embedding"}]}], "string", model=model)
    assert stated_placeholder(str(caught.value)) == "<|x|>", "clients read the placeholder from this error"
    assert parse([{"role": "user", "content": [text(PAD), value(1)]}], "string", model=model) == (
        [f"{PAD}<|x|>"],
        [1],
    )


@pytest.mark.usefixtures("patched_parser")
@pytest.mark.parametrize(
    "content, message",
    [
        (f"a{PAD}", "the text of a message holds the placeholder <|fim_pad|> once and comes with no embeddings"),
        ([text(f"a{PAD}")], "once and comes with no embeddings; expected one for each"),
        ([text(f"{PAD}{PAD}"), value(1)], "2 times and comes with 1 embedding; expected one for each, or none in the"),
        ([text(PAD), value(1), value(2)], "once and comes with 2 embeddings"),
        ([value(1)] * 4, "4 embedding are too many"),
        ([{"type": "embedding"}], "a content part of type embedding has no embedding; expected {"),
        ([text("a"), {"type": "embedding", "embedding": {"data": "?", "encoding": "npy"}}], "is not base64: character"),
        (
            [{"type": "embedding", "embedding": {"data": "QUJD", "encoding": "pt"}}],
            "is a text that begins with 'ABC'; expected",
        ),
        (
            [value(1), {"type": "embedding", "embedding": {"data": "QUJD", "encoding": "pt"}}],
            "embedding 2 of 2 is a text",
        ),
        (
            value(1),
            "the content of a message has 'type' where a part belongs; expected one text, or a list of parts like",
        ),
        (["a"], "the content of a message has 'a' where a part belongs; expected one text"),
        ([value(1), {"type": "nonsense"}], "Unsupported chat content part type: 'nonsense'"),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_invalid_messages_raise_one_line_error(content: Any, message: str, asynchronous: bool) -> None:
    with pytest.raises(REFUSALS) as caught:
        parse([{"role": "user", "content": content}], "string", asynchronous)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.usefixtures("patched_parser")
def test_other_models_are_left_alone() -> None:
    other_model = configuration("Qwen3ForCausalLM")
    assert parse([{"role": "user", "content": f"a{PAD}"}], "string", model=other_model) == ([f"a{PAD}"], [])
    with pytest.raises(VLLMValidationError, match="Unsupported chat content part type: 'embedding'"):
        parse([{"role": "user", "content": [text("a"), value(1)]}], "string", model=other_model)


@pytest.mark.usefixtures("patched_parser")
def test_parser_is_patched_only_once() -> None:
    functions = [getattr(chat_utils, name) for name in chat.PARAMETERS]
    chat.teach_embeddings()
    assert [getattr(chat_utils, name) for name in chat.PARAMETERS] == functions


@pytest.mark.usefixtures("original_parser")
@pytest.mark.parametrize("name", list(chat.PARAMETERS))
@pytest.mark.parametrize("replacement", [None, lambda message, tracker: None])
def test_vllm_with_another_parser_is_not_patched_and_logs_a_warning(
    name: str, replacement: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(chat.logger, "warning_once", lambda form, *arguments: warnings.append(form % arguments))
    originals = {key: getattr(chat_utils, key) for key in chat.PARAMETERS if key != name}
    monkeypatch.setattr(chat_utils, name, replacement)
    chat.teach_embeddings()
    assert getattr(chat_utils, name) is replacement and all(
        getattr(chat_utils, key) is function for key, function in originals.items()
    )
    [sentence] = warnings
    assert name in sentence and "content parts of type embedding are refused" in sentence


def test_chat_architecture_is_registered_by_the_plugin() -> None:
    assert chat.ARCHITECTURE in models()
    assert issubclass(BadRequest, ValueError)
