"""The form of a conversation with all its settings and answers, as plain JSON.

The Chat tab keeps conversations in this form in the browser, and replay bundles have it in `chat.json`:

    {"title": text, "created": text,
     "columns": [{"model": "demo/speechlm|pytorch", "system": text, "options": {name: value}}],
     "turns": [{"user": {"text": text, "sound": number or null},
                "answers": [null or {"column": settings as above, "text": text, "sound": number or null,
                                     "finish": text, "pieces": [[text, number of tokens]],
                                     "answer": fields of the answer, or null}]}]}

There is one answer for each column. Here a sound is a number; in a bundle it is the name of a file. This file reads no
file and knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.core.errors import BadInput

FORMAT = "speech-workbench-chat"
MAX_TURNS, MAX_COLUMNS = 1000, 3
MAX_TEXT_CHARACTERS = 1_000_000
FINISHES = ("stop", "length", "cancelled", "failed")


def check_chat(chat: Any, sounds: int) -> dict[str, Any]:
    """Returns the known parts of a conversation; raises `BadInput` that names the first place with another form.

    Args:
        sounds: how many sounds there are; the conversation names them by numbers from 0 on.
    """
    where = "the conversation"
    content = _object(chat, where)
    columns = [_column(each, f"column {n + 1}") for n, each in enumerate(_list(content, "columns", where, MAX_COLUMNS))]
    if not columns:
        raise BadInput(f"{where} has no columns; expected 1 to {MAX_COLUMNS}")
    return {
        "title": _text(content, "title", where),
        "created": _text(content, "created", where),
        "columns": columns,
        "turns": [
            _turn(each, f"turn {n + 1}", sounds) for n, each in enumerate(_list(content, "turns", where, MAX_TURNS))
        ],
        **({"versions": _json_value(content["versions"], "versions")} if "versions" in content else {}),
    }


def numbered_sounds(chat: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns a copy in which `change(sound)` replaces each sound that is not None."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: change(each) if name == "sound" and each is not None else walk(each)
                for name, each in value.items()
            }
        return [walk(each) for each in value] if isinstance(value, list) else value

    turns = chat.get("turns")
    return {**chat, "turns": walk(turns) if isinstance(turns, list) else turns}


def _turn(content: Any, where: str, sounds: int) -> dict[str, Any]:
    turn = _object(content, where)
    user = _object(turn.get("user"), f"{where}, user")
    answers = _list(turn, "answers", where, MAX_COLUMNS)
    return {
        "user": {"text": _text(user, "text", where), "sound": _sound(user, where, sounds)},
        "answers": [
            None if each is None else _answer(each, f"{where}, answer {n + 1}", sounds)
            for n, each in enumerate(answers)
        ],
    }


def _answer(content: Any, where: str, sounds: int) -> dict[str, Any]:
    answer = _object(content, where)
    finish = _text(answer, "finish", where)
    if finish not in FINISHES:
        raise BadInput(f"{where} has the finish {finish!r:.40}; expected one of {', '.join(FINISHES)}")
    fields = answer.get("answer")
    return {
        "column": _column(answer.get("column"), where),
        "text": _text(answer, "text", where),
        "sound": _sound(answer, where, sounds),
        "finish": finish,
        "error": _text(answer, "error", where) if "error" in answer else "",
        "pieces": _pieces(answer.get("pieces", []), where),
        "answer": None if fields is None else _fields(_object(fields, where), where),
    }


def _pieces(content: Any, where: str) -> list[list[Any]]:
    for piece in content if isinstance(content, list) else [None]:
        if not (isinstance(piece, list) and len(piece) == 2 and isinstance(piece[0], str) and _are_ids(piece[1:])):
            raise BadInput(f"{where} has pieces that are not pairs of a text and a number of tokens")
    return [list(piece) for piece in content]


def _column(content: Any, where: str) -> dict[str, Any]:
    column = _object(content, where)
    options = _object(column.get("options"), f"{where}, options")
    for name, value in options.items():
        if not isinstance(value, (str, int, float, bool, type(None))) or len(str(value)) > MAX_TEXT_CHARACTERS:
            raise BadInput(f"{where} has the option {name!r:.40} with a value that is neither a text nor a number")
    return {
        "model": _text(column, "model", where),
        "system": _text(column, "system", where),
        "options": dict(options),
    }


def _fields(answer: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the fields of an answer: ids are lists of whole numbers, and all other values are plain."""
    ids, streams = answer.get("token_ids") or [], answer.get("streams")
    if not _are_ids(ids) or not (streams is None or (isinstance(streams, list) and all(map(_are_ids, streams)))):
        raise BadInput(f"{where} has ids that are not whole numbers")
    if streams and len({len(row) for row in streams}) != 1:
        raise BadInput(f"{where} has rows of streams of different lengths")
    return dict(_json_value(answer, where))


def _are_ids(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 1 << 31 for each in values
    )


def _json_value(value: Any, where: str, depth: int = 0) -> Any:
    if depth > 6:
        raise BadInput(f"{where} holds values that are nested too deeply")
    if isinstance(value, dict):
        return {str(name)[:80]: _json_value(each, where, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_json_value(each, where, depth + 1) for each in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise BadInput(f"{where} holds a value of type {type(value).__name__}")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{where} is of type {type(value).__name__}; expected an object")
    return value


def _list(content: Mapping[str, Any], name: str, where: str, limit: int) -> list[Any]:
    value = content.get(name)
    if not isinstance(value, list) or len(value) > limit:
        raise BadInput(f"{where} has no list of {name} with at most {limit} entries")
    return value


def _text(content: Mapping[str, Any], name: str, where: str) -> str:
    value = content.get(name, "")
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARACTERS:
        raise BadInput(f"{where} has a {name} that is not a text or is too long")
    return value


def _sound(content: Mapping[str, Any], where: str, sounds: int) -> int | None:
    value = content.get("sound")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < sounds:
        raise BadInput(f"{where} names a sound that is not there")
    return value
