"""The arguments of the tools of MCP: files, arguments by name, and one sentence for invalid ones."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench import __version__
from workbench.core.errors import BadInput
from workbench.serving.mcp.files import PATH
from workbench.serving.service import Service, error_reply

NAME = "speech-workbench"
INSTRUCTIONS = (
    "Speech and language models on PyTorch, GGUF and vLLM. Call `models` first: it has the names that the other tools "
    f"take. Files come as base64 in `data`, or as `upload`: the id that POST {PATH} answers to a form with the file "
    f"(curl -F file=@talk.wav ADDRESS{PATH}). Paths of the server are not taken."
)
FILE_FIELDS = "a file has data (base64) or upload (an id), and a name"


class SentFile(BaseModel):
    """A file: either its content as `data`, or an `upload`."""

    model_config = ConfigDict(extra="forbid")
    data: str = Field("", description="the file's content in base64")
    upload: str = Field("", description=f"the id of an upload, from POST {PATH}")
    name: str = Field("", description="the file's name, such as talk.wav; its suffix states the format")


class SentEmbedding(SentFile):
    """A file with an embedding, and which of its arrays is meant."""

    tensor: str = Field("", description="the name of the array, for a file with several")


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """Keeps the package from changing the log of the whole process: it leaves a log that has a handler as it is."""
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


class Tools(MCPServer):
    """A server of tools that checks arguments by name. Its answer to an error is one sentence."""

    def __init__(self, service: Service):
        with _own_logging():
            super().__init__(NAME, title="Speech Workbench", instructions=INSTRUCTIONS, version=__version__)
        self._service = service

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Refuses a prompt: there are none."""
        raise MCPError(INVALID_PARAMS, f"there is no prompt {name!r:.60}; this server has tools alone")

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Calls a tool; raises `ToolError` with one sentence."""
        tools = {each.name: each for each in await self.list_tools()}
        try:
            if name not in tools:
                raise BadInput(f"there is no tool {name!r:.60}; the tools are {', '.join(tools)}")
            known = tools[name].input_schema.get("properties", {})
            for each in arguments:
                if each not in known:
                    raise BadInput(f"{name} has no parameter {each!r:.60}; it has {', '.join(known)}")
            self._service.pool.guard.check_values(_without_data(arguments), f"the call of {name}")
            return await super().call_tool(name, arguments, context)
        except BadInput as error:
            raise ToolError(str(error)) from error
        except ToolError as error:
            cause = error.__cause__ or error
            raise ToolError(_sentence(name, cause)) from cause


def _sentence(tool: str, error: BaseException) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the arguments"
        if first["type"] == "missing":
            return f"{place} is missing in the call of {tool}"
        if first["type"] == "extra_forbidden":
            return f"{place} is not a field here; {FILE_FIELDS}"
        if first["type"] == "model_type":
            return f"{place} is not an object; {FILE_FIELDS}"
        return f"{place} is not as {tool} expects it: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return str(error_reply(error)[1]["error"]["message"])


def _without_data(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments without the content of files, alone or in a list, which have a limit of their own."""
    return {
        name: [_file_without_data(each) for each in value] if isinstance(value, list) else _file_without_data(value)
        for name, value in arguments.items()
    }


def _file_without_data(value: Any) -> Any:
    if isinstance(value, Mapping) and value.keys() <= {*SentEmbedding.model_fields}:
        return {name: each for name, each in value.items() if name != "data" or not isinstance(each, str)}
    return value
