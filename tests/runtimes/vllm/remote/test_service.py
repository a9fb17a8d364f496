"""Detection of the models and routes of a server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.runtimes.vllm.remote.fake_server import CHAT, COMPLETIONS, END, MODEL, FakeServer, as_json
from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.runtimes.vllm.remote.client import Client
from workbench.runtimes.vllm.remote.service import DETOKENIZE, Service, find_service, pieces


def test_only_model_of_the_server_is_selected_without_a_name(client: Client) -> None:
    service = find_service(client)
    assert service == Service(MODEL, frozenset({CHAT, COMPLETIONS, DETOKENIZE}), (END,), True)


def test_a_model_is_found_by_its_name(client: Client, fake: FakeServer) -> None:
    fake.models = ["one", "two"]
    assert find_service(client, "two").model == "two"


@pytest.mark.parametrize(
    "models, name, message",
    [
        (["one", "two"], "", "has 2 models, one, two; expected the name of one of them in the source of mine's card"),
        (
            ["one", "two"],
            "three",
            "has no model 'three'; it has one, two: correct the name in the source of mine's card",
        ),
        ([], "", "has 0 models, none; expected"),
        ([str(n) for n in range(50)], "x", r"it has 0, 1, 2, 3, 4, 5, 6, 7 \.\.\.: correct"),
    ],
)
def test_unknown_or_missing_model_name_raises_an_error_with_the_known_names(
    client: Client, fake: FakeServer, models: Sequence[str], name: str, message: str
) -> None:
    fake.models = list(models)
    with pytest.raises(BadInput, match=message):
        find_service(client, name)


@pytest.mark.parametrize("content", [[], {"data": 5}, {"data": [{}]}, {"object": "list"}, None])
def test_malformed_model_list_raises_an_error(client: Client, fake: FakeServer, content: object) -> None:
    fake.answers["/v1/models"] = lambda *_: as_json(content)
    with pytest.raises(WorkbenchError, match="/v1/models with no list of models; expected an OpenAI-compatible server"):
        find_service(client)


def test_server_without_models_route_raises_an_error(client: Client, fake: FakeServer) -> None:
    del fake.answers["/v1/models"]
    with pytest.raises(WorkbenchError, match="answers /v1/models with 404; expected an OpenAI-compatible server"):
        find_service(client)


def test_server_that_requires_a_key_raises_unavailable(client: Client, fake: FakeServer) -> None:
    fake.key = "secret"
    with pytest.raises(Unavailable, match=r"refuses access \(401: Unauthorized\), and its card names no key; put its"):
        find_service(client)


def test_stop_text_of_several_tokens_gives_no_stop_id(client: Client, fake: FakeServer) -> None:
    fake.answers["/tokenize"] = lambda *_: as_json({"tokens": [1, 2, 3]})
    assert find_service(client).stop_ids == ()


def test_model_without_chat_template_is_detected(client: Client, fake: FakeServer) -> None:
    def answer(server: FakeServer, body: dict) -> object:
        return as_json({"error": {"message": "no template"}}, 400) if "messages" in body else server.tokenize(body)

    fake.answers["/tokenize"] = answer
    assert not find_service(client).has_chat_template


def test_server_without_tokenize_route_is_assumed_to_have_a_chat_template(client: Client, fake: FakeServer) -> None:
    del fake.answers["/tokenize"], fake.answers["/detokenize"]
    service = find_service(client)
    assert (service.stop_ids, service.has_chat_template) == ((), True)
    assert pieces(client, service, [1, 2]) == ["", ""]


def test_tokens_are_detokenised_one_by_one(client: Client) -> None:
    assert pieces(client, find_service(client), [2, 1, END]) == [" two", "one", "<|im_end|>"]
