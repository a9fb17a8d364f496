"""The command `workbench decode`: CTC beam search over files of logits. Returns the lines to print.

All files are checked before the first is decoded, and no line is returned before the last is done, so that bad input
prints nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence

from workbench.cli.arguments.help_text import one_line
from workbench.cli.arguments.models import chosen_options
from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.pipelines.ctc.beam_search import TextHypothesis
from workbench.pipelines.ctc.logits_files import read_logits
from workbench.pipelines.ctc.token_files import read_tokens, tokens_for
from workbench.registry.ctc_layouts import logits_layout
from workbench.registry.ctc_search import CtcBeamSearch
from workbench.registry.registry import Registry

FILES_AT_ONCE, VALUES_AT_ONCE = 8, 1 << 25  # decoded in one batch, as far as more than one file fits

Found = tuple[str, Sequence[TextHypothesis]]


def decode_files(parsed: argparse.Namespace, say: Callable[[str], None]) -> list[str]:
    """Returns the lines to print for the files of logits, in the order given; raises `BadInput` for any bad input.

    Args:
        say: gets sentences about what the language models lack, when all is done.
    """
    progress = ProgressLine()
    found: list[Found] = []
    try:
        columns, stage = _model_columns(parsed, progress) if parsed.model else (read_tokens(parsed.tokens), "")
        sizes = []
        for path in parsed.logits:
            frames, width = read_logits(path, stage).shape
            if not isinstance(columns, LogitsLayout):
                columns = tokens_for(columns, width, path, parsed.tokens)
            sizes.append(frames * width)
        with CtcBeamSearch(columns, parsed.blank, **chosen_options(parsed)) as search:
            for count in _batches(sizes):
                paths = parsed.logits[len(found) : len(found) + count]
                progress.show(f"decoding {len(found) + 1} of {len(parsed.logits)}")
                found += zip(paths, search.decode_batch(paths), strict=True)
    finally:
        progress.clear()
    for note in search.notes:
        say(note)
    return list(_json(found) if parsed.json else _table(found))


def _model_columns(parsed: argparse.Namespace, progress: ProgressLine) -> tuple[LogitsLayout, str]:
    """Returns the layout of the logits of --model, and the stage of a trace that holds them."""
    if parsed.blank is not None:
        raise BadInput(f"--blank is for --tokens, and {parsed.model} has a blank of its own; leave out --blank")
    with Registry() as registry:
        layout = logits_layout(registry.card(parsed.model), progress.fetching)
    return layout, layout.stage


def _batches(sizes: Sequence[int]) -> Iterator[int]:
    """Yields the number of files in each batch, from the number of values in each file."""
    count = values = 0
    for size in sizes:
        if count == FILES_AT_ONCE or (count and values + size > VALUES_AT_ONCE):
            yield count
            count = values = 0
        count, values = count + 1, values + size
    if count:
        yield count


def _json(found: Sequence[Found]) -> Iterator[str]:
    for path, hypotheses in found:
        line = {"file": path, "hypotheses": [each.to_dict() for each in hypotheses]}
        yield json.dumps(line, ensure_ascii=False, allow_nan=False)


def _table(found: Sequence[Found]) -> Iterator[str]:
    """Yields a block for each file: its name, and a line for each hypothesis with the parts of its score."""
    for number, (path, hypotheses) in enumerate(found):
        if number:
            yield ""
        yield one_line(path)
        if not hypotheses:
            yield "  no hypothesis is possible"
            continue
        yield f"  {'score':>10}  {'acoustic':>10}  {'lm':>10}  text"
        for each in hypotheses:
            yield f"  {each.score:10.3f}  {each.acoustic:10.3f}  {each.lm:10.3f}  {one_line(each.text)}"
