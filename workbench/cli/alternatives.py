"""The likely alternatives of each generated token, as the lines of a table for a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import zip_longest

from workbench.session.values import Alternative, Generation
from workbench.text.scripts import clipped, display_width, padded

TOKEN_WIDTH = 16  # columns for a token's text


def alternatives_table(generation: Generation) -> Iterator[str]:
    """Yields a line for each step: its number, and each alternative with its probability; `*` marks the written one."""
    written_tokens = [*generation.tokens, *[None] * len(generation.alternatives)]  # some servers do not report tokens
    lines = [
        [str(number), *(_cell(each, token) for each in step)]
        for number, (step, token) in enumerate(zip(generation.alternatives, written_tokens), 1)
    ]
    widths = [max(map(display_width, column)) for column in zip_longest(*lines, fillvalue="")]
    for line in lines:
        cells = (padded(cell, width) for cell, width in zip(line, widths))
        yield "  ".join(cells).rstrip()


def _cell(each: Alternative, written_token: int | None) -> str:
    text = clipped(json.dumps(each.text, ensure_ascii=False), TOKEN_WIDTH)
    percent = 100 * math.exp(each.logprob)
    return f"{'*' if each.id == written_token else ' '}{text} {f'{percent:.1f}' if percent >= 0.05 else '<0.1'} %"
