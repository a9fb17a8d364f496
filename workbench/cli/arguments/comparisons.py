"""The arguments of the commands that compare stages: `compare` and `parity`."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.cli.arguments.inputs import add_conversation, add_embeddings, add_stages, add_steps
from workbench.cli.arguments.models import ANY, add_options, add_settings, words
from workbench.compare.presets import MEASURES, PRESETS, WORSE_FACTOR


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench compare`."""
    parser.description = (
        "Exit status: 0 within tolerance, 1 beyond it (with --float64, also for a bug), 2 for a file that "
        "cannot be used or any other error. With a model and a GGUF file, the command compares their weights: 0 equal "
        "to within rounding, 1 different."
    )
    files = ".safetensors, .npz, or a directory or .zip of .npy files"
    parser.add_argument(
        "reference", metavar="REFERENCE", type=Path, help=f"the trace to compare with: {files}; or a model"
    )
    parser.add_argument(
        "candidate", metavar="CANDIDATE", type=Path, help="the trace that is judged; or a GGUF file of that model"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--profiles", action="store_true", help="add the error over positions and channels to the JSON")
    parser.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        help="tolerance (default: that of the least precise arithmetic that the traces name)",
    )
    _add_tolerance(parser)
    add_stages(parser)
    parser.add_argument(
        "--float64", type=Path, metavar="TRACE", help="a trace of the reference in float64, to tell noise from a bug"
    )
    parser.add_argument(
        "--same-precision",
        type=Path,
        metavar="TRACE",
        help="a trace of the reference's model in the candidate's bfloat16 or float16 (workbench trace --stepwise); "
        "requires --float64: a larger rounding error than in this trace is a bug",
    )


def add_parity(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench parity`."""
    parser.description = (
        "Exit status: 0 all candidates within tolerance, 1 one beyond it, 2 one cannot be compared, or any other "
        "error, 3 none is available. With --baseline: 0 nothing got worse, 1 something did, 2 any other error."
    )
    _add_input(parser)
    _add_sides(parser)
    _add_output(parser)
    _add_automatic(parser)
    _add_judging(parser)
    add_options(parser, ANY)
    add_settings(
        parser, excluded=("dtype", "quantization", "stepwise", "weights", "summation")
    )  # each side sets these itself


def _add_input(parser: argparse.ArgumentParser) -> None:
    """Adds the model and its input."""
    model = parser.add_argument_group("model and input")
    model.add_argument("model", metavar="M", help="a model's id (see: workbench models), a checkpoint or a GGUF file")
    model.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="an audio file or a prompt (- reads stdin); several, a folder of recordings, or a list of them (.txt with "
        "one on each line, .jsonl) for one verdict over all, which also finds faults near the noise",
    )
    add_conversation(model)
    add_embeddings(model)


def _add_sides(parser: argparse.ArgumentParser) -> None:
    """Adds the sides that are compared."""
    side = "RUNTIME, RUNTIME:TYPE (gguf:q8_0, vllm:bfloat16), with +NAME=VALUE for its own settings and options"
    sides = parser.add_argument_group("what is compared")
    sides.add_argument(
        "--reference", default="pytorch", metavar="SIDE", help=f"{side}, or a trace (default: %(default)s, in float32)"
    )
    sides.add_argument(
        "--candidates",
        action="extend",
        type=words,
        required=True,
        metavar="SIDE,...",
        help="sides to compare with the reference, or GGUF files of the model; the flag may be repeated",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the output."""
    output = parser.add_argument_group("output")
    output.add_argument(
        "--report",
        type=Path,
        metavar="OUT.html",
        help="write a report with figures to one file; an existing file is replaced",
    )
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the traces in this folder")


def _add_automatic(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for continuous integration."""
    automatic = parser.add_argument_group("continuous integration")
    automatic.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE.json",
        help="the --json of an earlier run: fail only for what got worse since then",
    )
    automatic.add_argument(
        "--worse-by",
        type=float,
        default=WORSE_FACTOR,
        metavar="FACTOR",
        help="with --baseline: an error beyond its limit counts as worse if it grew by this factor (default: "
        "%(default)s)",
    )
    automatic.add_argument(
        "--junit",
        type=Path,
        metavar="OUT.xml",
        help="write the stages as test cases of JUnit XML; an existing file is replaced",
    )
    automatic.add_argument(
        "--summary",
        type=Path,
        metavar="OUT.md",
        help="write the verdicts as Markdown for a pull request, and the map of errors as a PNG file of the same name",
    )


def _add_judging(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for tracing and judging."""
    judged = parser.add_argument_group("comparison and tolerance")
    add_stages(judged)
    add_steps(judged)
    judged.add_argument(
        "--isolated",
        action="store_true",
        help="compute every stage from the reference's input of that stage, so that it shows only its own error; for a "
        "dump, compute the reference's stages from the dump's (default: end to end, where errors accumulate)",
    )
    judged.add_argument(
        "--narrow",
        action="store_true",
        help="if the first stage in error is in a layer, trace that layer again with its inner stages, and name the "
        "first stage in error there; loads and traces every side at most once more for each such layer",
    )
    judged.add_argument(
        "--float64",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run the reference in float64 too, to tell noise from a bug (default: yes, on pytorch)",
    )
    judged.add_argument(
        "--same-precision",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="for candidates in bfloat16, float16 or with quantised weights, run the reference's model in that "
        "precision too, with its sums in several orders; a candidate beyond their spread has a bug (default: yes, with "
        "--float64)",
    )
    judged.add_argument(
        "--precision",
        default="auto",
        metavar="TYPE",
        help="precision of candidates that are trace files: float32, bfloat16, float16, a type of GGUF files such as "
        "q8_0, or the GGUF file that the port has read; auto: what the trace says or its values show "
        "(default: %(default)s)",
    )
    judged.add_argument(
        "--preset", choices=tuple(PRESETS), help="tolerance (default: that of each candidate's arithmetic)"
    )
    _add_tolerance(judged)


def _add_tolerance(parser: argparse._ActionsContainer) -> None:
    """Adds the flags for reading candidates and judging them."""
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="[GLOB:]MEASURE=LIMIT,...",
        help=f"another limit for all stages or some; may be repeated; measures: {', '.join(MEASURES)}",
    )
    parser.add_argument(
        "--mapping",
        type=Path,
        metavar="FILE",
        help="TOML or JSON file that maps the candidate's arrays to stages",
    )
    parser.add_argument("--force", action="store_true", help="compare even traces of different inputs or models")
