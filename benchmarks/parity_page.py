"""The page `benchmarks/PARITY.md` with the results of `benchmarks.parity_table`: writes it and reads it.

The page depends only on the rows of its tables and on the facts of its run. So reading and writing it again gives the
same text.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import groupby

from workbench.compare.presets import PRESETS
from workbench.core.errors import BadInput

RESULTS = "logits"
GROUPS: Mapping[str, str] = {
    "frontend": "front end",
    "prompt": "front end",
    "tower.mel": "front end",
    "encoder": "encoder",
    "tower": "encoder",
    "adaptor": "adaptor, predictor",
    "predictor": "adaptor, predictor",
    "decoder": "decoder, llm",
    "llm": "decoder, llm",
    "answer": "decoder, llm",
    "codec.logits": RESULTS,
    "codec": "codec",
}
"""The column of a stage, by its name or the first word of its name; all others are results."""
NOTHING = "–"
REFERENCE, WITHIN, BEYOND = "the reference", "within", "beyond"
UNLIKE = "not alike"  # of another shape, or not finite at the same positions
_FACTS = ("Command", "Date", "Machine", "Versions", "Recordings", "Prompts", "Conversations")
_TITLE = "# Parity of the demo models"


@dataclass(frozen=True)
class Row:
    """The results of a runtime and a type on all inputs: the cells of one row, in the order of the columns."""

    runtime: str
    type: str
    verdict: str  # within PRESET; beyond PRESET ...; the reference; or why it does not exist
    worst: str  # relative L2 and its stage
    front_end: str  # the largest relative L2 of any stage of that group, as in the next fields
    encoder: str
    middle: str
    language: str
    results: str
    codec: str
    top1: str
    tokens: str
    noise: str
    exact: str  # distance from float64, and as a multiple of the reference's
    isolated: str  # the worst stage if each is computed from the reference's input of it

    @property
    def preset(self) -> str | None:
        """The preset in the verdict; None if nothing was compared."""
        match = re.match(f"(?:{WITHIN}|{BEYOND}) ([a-z0-9_]+)", self.verdict)
        return match[1] if match else None

    @property
    def within(self) -> bool:
        """Whether every stage of every input was within the preset."""
        return self.verdict.startswith(f"{WITHIN} ")

    @property
    def errors(self) -> dict[str, float]:
        """The largest relative L2 of each group that was compared; infinite for a prompt that differs."""
        cells = zip(GROUPED, (self.front_end, self.encoder, self.middle, self.language, self.results, self.codec))
        return {name: _number(cell) for name, cell in cells if cell != NOTHING}

    @property
    def worst_error(self) -> float:
        """The largest relative L2 of all stages."""
        return _number(self.worst.partition(" ")[0])


COLUMNS = (
    "runtime",
    "type",
    "verdict",
    "worst stage",
    "front end",
    "encoder",
    "adaptor, predictor",
    "decoder, llm",
    RESULTS,
    "codec",
    "top-1",
    "tokens equal",
    "noise or bug",
    "from float64",
    "isolated: worst stage",
)
assert len(COLUMNS) == len(fields(Row))
GROUPED = COLUMNS[4:10]
_SUMMARY = ("runtime", "type", "models", "held to", "its limit", *GROUPED, "tokens equal", "verdict")


_PLANTED = "Planted faults"


@dataclass(frozen=True)
class Page:
    """The facts of a run, and the rows of each model."""

    facts: Mapping[str, str]
    tables: Mapping[str, Sequence[Row]]
    planted: str = ""  # what `benchmarks.planted_faults` wrote, without its heading


def group_of(stage: str) -> str:
    """Returns the column of a stage."""
    return GROUPS.get(stage) or GROUPS.get(stage.partition(".")[0], RESULTS)


def error(value: float | None) -> str:
    """Returns a relative L2 as a cell."""
    if value is None:
        return NOTHING
    return "0" if value == 0 else f"{value:.1e}" if math.isfinite(value) else UNLIKE


def _number(cell: str) -> float:
    """Returns the error in a cell; infinite for a difference that is not a number."""
    try:
        return float(cell)
    except ValueError:
        return float("inf")


def render(page: Page) -> str:
    """Returns the text of the page."""
    return "\n\n".join(_parts(page)) + "\n"


def _parts(page: Page) -> Iterator[str]:
    rows = [row for table in page.tables.values() for row in table]
    yield _TITLE
    yield _fold(
        "The command below writes this page. It compares every runtime and every type of weights or arithmetic with "
        "PyTorch in float32, stage by stage, over all sample recordings, some prompts and some conversations, and "
        "states what users may rely on."
    )
    yield "\n".join(f"- {name}: {page.facts[name]}" for name in _FACTS)
    yield "## What is promised"
    yield _fold(
        "Each row has the worst values of all models and inputs: the largest relative L2 error of any stage of a "
        "group, and in how many of all traces the tokens equal the reference's."
    )
    yield _table(_SUMMARY, _summary(rows))
    yield "\n".join(_fold(f"- {each}", "  ") for each in _promises(rows))
    yield "## What is not"
    yield "\n".join(_fold(f"- {each}", "  ") for each in _limits(rows))
    for model, table in page.tables.items():
        yield f"## {model}"
        yield _table(COLUMNS, map(astuple, table))
    yield "## How to read the tables"
    yield "\n".join(_fold(f"- {each}", "  ") for each in _READING)
    if page.planted:
        yield f"## {_PLANTED}"
        yield page.planted


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def _fold(text: str, indent: str = "") -> str:
    """Returns the text in lines of at most 120 characters."""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _compared(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.preset]


def _summary(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    def kind(row: Row) -> tuple[str, str]:
        return row.runtime, row.type

    order = list(dict.fromkeys((row.runtime, each) for row in rows for each in row.type.split(", ")))
    compared = sorted(_compared(rows), key=lambda row: order.index(kind(row)))
    for (runtime, of), group in groupby(compared, kind):
        rows_of_group = list(group)
        largest = {
            name: max((row.errors[name] for row in rows_of_group if name in row.errors), default=None)
            for name in GROUPED
        }
        preset = PRESETS[str(rows_of_group[0].preset)]
        beyond = [row for row in rows_of_group if not row.within]
        tokens = [
            list(map(int, re.findall("[0-9]+", row.tokens)[:2])) for row in rows_of_group if row.tokens != NOTHING
        ]
        yield (
            runtime,
            of,
            str(len(rows_of_group)),
            preset.name,
            error(preset.limits.relative_l2),
            *(error(largest[name]) for name in GROUPED),
            f"{sum(equal for equal, _ in tokens)} of {sum(count for _, count in tokens)}",
            WITHIN if not beyond else f"{BEYOND} for {len(beyond)} of {len(rows_of_group)} models",
        )


def _promises(rows: Sequence[Row]) -> Iterator[str]:
    """Yields what the rows allow to promise; if rows contradict a promise, the sentence names them."""
    compared = _compared(rows)
    beyond = [f"{row.runtime} {row.type}" for row in compared if not row.within]
    if beyond:
        yield f"All are within their presets except {', '.join(dict.fromkeys(beyond))}; their rows say where."
    else:
        yield (
            "Every stage of every family is within the preset of its type on every runtime: relative L2, largest "
            "difference, cosine, and for logits the divergence and the top-1 agreement "
            "([the presets](../workbench/compare/presets.py))."
        )
    front = max((row.errors.get("front end", 0.0) for row in compared), default=0.0)
    if front == 0:
        yield (
            "Front end and prompt are equal to the last bit everywhere: all runtimes share the code for filter bank, "
            "LFR and CMVN, and for the token ids of prompts."
        )
    else:
        yield f"Front end and prompt agree to {front:.1e}."
    exact = [row for row in compared if row.preset == "f32"]
    changed = [row for row in exact if not _all_equal(row)]
    yield (
        "In float32 the tokens are the same on all runtimes."
        if not changed
        else "In float32 the tokens differ only at near ties: "
        + ", ".join(f"{row.runtime} {row.type} ({row.tokens})" for row in changed)
        + "."
    )
    bugs = dict.fromkeys(
        f"{row.runtime} {row.type} ({row.noise})" for row in compared if row.noise not in ("noise", NOTHING)
    )
    yield (
        f"Compared with float64, all differences are rounding noise except: {', '.join(bugs)}."
        if bugs
        else "Compared with float64, all differences are rounding noise."
    )


def _all_equal(row: Row) -> bool:
    match = re.match("([0-9]+) of ([0-9]+)", row.tokens)
    return not match or match[1] == match[2]


def _limits(rows: Sequence[Row]) -> Iterator[str]:
    rounded = [row for row in _compared(rows) if row.preset != "f32" and not _all_equal(row)]
    candidates = ", ".join(dict.fromkeys(f"{row.runtime} {row.type}" for row in rounded))
    differ = f"; here they differ in some traces of {candidates}" if candidates else ", although they are equal here"
    yield f"Equal tokens in types coarser than float32{differ}."
    if any("predictor.embeddings (" in row.verdict for row in rows):
        yield (
            "An equal number of tokens from a Paraformer in few bits: its predictor emits a token where a sum of "
            "weights passes 1, and rounding moves that point. Stages of another shape count as infinitely far from "
            "float64."
        )
    yield (
        "Equal bits on two runtimes after the front end, or with another number of threads: sums are added in "
        "another order."
    )
    yield (
        "A KV cache in f16 or q8_0 (`--kv-cache`), compiled graphs of vLLM (`--no-eager`), GPUs, sampling and beam "
        "search: these results are from a CPU with a KV cache in f32 and greedy decoding."
    )
    yield (
        "Other checkpoints: longer networks add up more errors, and a type may hurt one model more than another. "
        "`workbench parity MODEL AUDIO --candidates gguf:q8_0` measures yours."
    )
    yield (
        "Agreement of two audio encoders on vLLM: vLLM computes the language model, and the audio encoder is PyTorch's "
        "network in float32. Errors of 0 before `llm` mean one computation, not two that agree."
    )


_READING = (
    "Types of GGUF are types of weights; types of PyTorch and vLLM are those of a language model's arithmetic.",
    "Errors are relative L2, ‖candidate − reference‖ / ‖reference‖, the largest of all stages of the group and of all "
    "inputs; a group without stages has –.",
    "*top-1* is the share of all rows of logits with the reference's best token. *tokens equal* counts traces; near "
    "ties are traces whose first different token is as likely as the reference's, except for rounding. The tokens of a "
    "conversation are the ids of all streams of its answer.",
    "*codec* is the codec's decoder: latents and sound of answers whose streams are equal. It is f32 in GGUF files of "
    "all types; with vLLM it is PyTorch's.",
    "*noise or bug* compares every stage with the reference in float64: a candidate is noise if it is about as far "
    "from it as the reference is, considering its type ([how far](../workbench/compare/noise/limits.py)). *from "
    "float64* is the largest distance at the logits (for a model without logits, at its scores), and its ratio to the "
    "reference's distance.",
    "*isolated* computes every stage from the reference's input of that stage, so that no error comes from an earlier "
    "stage; it uses the two shortest inputs.",
)


# Reading.


def read(text: str) -> Page:
    """Reads a page from its text; raises `BadInput` for any other text."""
    facts = dict(re.findall(r"^- ([A-Z][a-z]+): (.*)$", text.partition("\n## ")[0], flags=re.MULTILINE))
    lacking = [name for name in _FACTS if name not in facts]
    if not text.startswith(_TITLE) or lacking:
        raise BadInput(f"this is no page of the parity table: it does not say {', '.join(lacking) or 'so'}")
    tables: dict[str, list[Row]] = {}
    planted = ""
    for section in text.split("\n## ")[1:]:
        model, _, body = section.partition("\n")
        if model == _PLANTED:
            planted = body.strip()
            continue
        lines = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines() if line[:1] == "|"
        ]
        if lines and tuple(lines[0]) == COLUMNS:
            if wrong := next((line for line in lines[2:] if len(line) != len(COLUMNS)), None):
                raise BadInput(f"a row of {model} has {len(wrong)} cells; expected {len(COLUMNS)}")
            tables[model] = [Row(*line) for line in lines[2:]]
    return Page({name: facts[name] for name in _FACTS}, tables, planted)
