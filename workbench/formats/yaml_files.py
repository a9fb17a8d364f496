"""Reads YAML files of checkpoints. Only plain values are made, and every fault raises `BadInput` with one sentence.

An alias (`*name`) repeats a value at no cost in the file. Ten lists, each of ten aliases of the one before, stand for
ten billion values, which any code that writes or walks through them would meet. So the values count as if written out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput, named_message_of
from workbench.formats.text_files import read_text

LARGEST = 1 << 20  # bytes; configurations have some thousand, and the parser takes seconds for a million
MAX_VALUES = 200_000  # with aliases written out; each entry of a mapping counts as two


def read_yaml(path: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file.

    Raises `BadInput`, which names the file and its folder, for a file that cannot be read or holds something else.
    """
    import yaml

    name = f"{path.parent.name}/{path.name}"
    try:
        text = read_text(path, LARGEST)
    except BadInput as error:
        raise BadInput(f"{name} cannot be read: {error}") from error
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None and _values(node, {}) > MAX_VALUES:
            raise BadInput(f"{name} stands for more than {MAX_VALUES:,} values, aliases written out; expected fewer")
        content = None if node is None else loader.construct_document(node)
    except BadInput:
        raise
    except yaml.MarkedYAMLError as error:
        problem = " ".join((error.problem or str(error)).split())
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInput(f"{name} is not valid YAML: {problem:.200}{where}") from error
    except Exception as error:  # for a value that does not fit its tag, such as !!bool x, the package raises any error
        reason = "its lists are nested too deeply" if isinstance(error, RecursionError) else named_message_of(error)
        raise BadInput(f"{name} is not valid YAML: {reason:.200}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{name} holds no mapping; expected keys with their values")
    return content


def _values(node: Any, counts: dict[int, int]) -> int:
    """Returns the number of values that a node stands for; more than `MAX_VALUES` for a node inside itself."""
    if id(node) not in counts:
        counts[id(node)] = MAX_VALUES + 1  # while it is counted
        parts = node.value if isinstance(node.value, list) else ()
        inner = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        counts[id(node)] = 1 + sum(_values(each, counts) for each in inner)
    return counts[id(node)]
