"""Requests to /mcp that are not JSON-RPC: one sentence in its error form."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.serving.mcp.test_mcp import MCP_HEADERS, running_server
from tests.support.fake_chat import FakeChatRegistry


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    with running_server(FakeChatRegistry()) as url:
        yield url


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        (b"", -32700, "the body of the request is not JSON"),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "tools/list"}', -32700, "NaN is not a JSON number"),
        (b"5", -32600, "the body of the request is not a JSON object"),
        (b"[]", -32600, "the body of the request is a list"),
        (b"{}", -32600, "jsonrpc is missing, not '2.0'"),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600, "method is missing, and result and error are not"),
        (b'{"jsonrpc": "2.0", "id": 1, "error": {}}', -32600, "method is missing, and result and error are not"),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}', -32600, "id is {}, neither a whole number nor"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}', -32600, "params is [], not an object"),
    ],
)
def test_request_that_is_not_json_rpc_is_refused_with_one_line_in_its_form(
    shared: str, body: bytes, code: int, sentence: str
) -> None:
    answer = httpx.post(f"{shared}/mcp", content=body, headers=MCP_HEADERS)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == code and answer.json()["id"] is None
    assert sentence in error["message"] and "expected a JSON-RPC message" in error["message"]
    assert "\n" not in error["message"]


def test_other_content_type_is_refused_with_a_sentence(shared: str) -> None:
    answer = httpx.post(f"{shared}/mcp", content=b"{}", headers={**MCP_HEADERS, "content-type": "text/plain"})
    assert "the content type is text/plain, not application/json" in answer.json()["error"]["message"]
