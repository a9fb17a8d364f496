"""The argument parser of the `workbench` command.

`workbench.cli.model_flags` adds the flags of models. This file runs nothing; `workbench.cli.commands` does.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from workbench import __version__
from workbench.cli.decoding_arguments import add_decode, add_train_lm
from workbench.cli.help_text import Parser, finish
from workbench.cli.model_commands import Training
from workbench.cli.model_flags import add_model, add_options, add_settings, help_of, words
from workbench.cli.visualise import add_visualise
from workbench.compare.presets import MEASURES, PRESETS, WORSE_FACTOR
from workbench.conversion import LAYOUTS
from workbench.core.options import option_specs
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE
from workbench.families.language import PLACEHOLDER
from workbench.formats.quantization import TYPES
from workbench.text.exports import FORMATS as WRITERS

FORMATS = ("text", *(name for name in WRITERS if name != "txt"))
ANY = ("transcribe", "generate", CONVERSE, "vad")  # tasks of all models
TARGETS = ("gguf", "vllm")  # runtimes for which checkpoints are converted


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line; its result holds the name of the command as `command`."""
    whole = Parser(prog="workbench", description="Run, compare and teach speech models over PyTorch, GGUF and vLLM.")
    whole.epilog = (
        "Each command explains itself: workbench COMMAND --help. Results go to stdout, progress and errors to stderr. "
        "Exit status: 2 bad input, 3 a runtime or a download that is not available, 1 anything else."
    )
    whole.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = whole.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")

    app = commands.add_parser("app", help="start the page")
    app.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    app.add_argument("--port", type=int, help="port to listen on, 0 to 65535 (default: 7860, or the next that is free)")

    models = commands.add_parser(
        "models", help="list the models, their state on each runtime, and the sizes of GGUF files"
    )
    models.add_argument("--json", action="store_true", help="print JSON")

    options = commands.add_parser("options", help="list a model's options for transcribe, generate, chat and trace")
    options.add_argument("model", metavar="M", help="a model's id (see: workbench models), a checkpoint or a GGUF file")
    options.add_argument("--json", action="store_true", help="print JSON")

    transcribe = commands.add_parser("transcribe", help="turn recordings into text")
    files = transcribe.add_argument_group("input and output")
    files.add_argument("audio", nargs="+", metavar="AUDIO", help="audio files; - for one on standard input")
    files.add_argument("--format", choices=FORMATS, default="text", help="format of the output (default: %(default)s)")
    add_model(transcribe)
    add_options(transcribe, ("transcribe",))
    add_settings(transcribe)

    generate = commands.add_parser("generate", help="continue a text with a language model")
    files = generate.add_argument_group("input and output")
    files.add_argument("prompt", metavar="PROMPT", help="a text, or - to read it from standard input")
    files.add_argument("--format", choices=("text", "json"), default="text", help="of the output (default: text)")
    add_model(generate)
    add_options(generate, ("generate",))
    add_settings(generate)

    _add_chat(commands.add_parser("chat", help="talk with a model, in text and speech"))

    inject = commands.add_parser("inject", help="continue a text that holds embeddings with a language model")
    files = inject.add_argument_group("input and output")
    _add_embeddings(files, required=True)
    files.add_argument(
        "--prompt",
        required=True,
        metavar="TEXT",
        help=f"a text with {PLACEHOLDER} (unless the model names another placeholder) for each embedding, in order; "
        "- reads standard input",
    )
    files.add_argument("--format", choices=("text", "json"), default="text", help="of the output (default: text)")
    add_model(inject)
    add_options(inject, ("generate",))
    add_settings(inject)

    trace = commands.add_parser("trace", help="save the stages of a model's computation")
    files = trace.add_argument_group("input and output")
    files.add_argument(
        "source",
        nargs="?",
        metavar="AUDIO",
        help="an audio file, or a prompt for a language model; - reads standard input",
    )
    _add_conversation(files)
    files.add_argument(
        "--out", required=True, metavar="T.safetensors", help="file to write; an existing file is replaced"
    )
    files.add_argument("--stages", default="*", metavar="GLOB", help="which stages, such as 'encoder.*' (default: all)")
    files.add_argument(
        "--given",
        type=Path,
        metavar="T.safetensors",
        help="another trace of this input: each stage is computed from its stages, not from the model's own",
    )
    _add_steps(files)
    files.add_argument(
        "--follow",
        type=Path,
        metavar="T.safetensors",
        help="another trace, whose tokens the decoding steps read (default: the tokens that the model itself writes)",
    )
    _add_embeddings(files)
    add_model(trace)
    add_options(trace, ANY)
    add_settings(trace)

    _add_compare(commands.add_parser("compare", help="find the first stage at which two traces diverge"))

    _add_parity(commands.add_parser("parity", help="run a model on several runtimes and compare them stage by stage"))

    add_decode(commands.add_parser("decode", help="turn logits of CTC into text by beam search"))

    add_visualise(commands.add_parser("visualise", help="draw what a model does with a recording"), ANY)

    convert = commands.add_parser(
        "convert", help="write a model's weights as one GGUF file, or as a directory for vLLM"
    )
    convert.add_argument("model", metavar="M", help="a model's id (see: workbench models) or a checkpoint directory")
    convert.add_argument(
        "--for",
        dest="target",
        choices=TARGETS,
        default=TARGETS[0],
        help="gguf, a GGUF file; vllm, a directory for `vllm serve` (default: %(default)s)",
    )
    convert.add_argument(
        "--quantization",
        "-q",
        metavar="TYPE",
        help=f"type of a GGUF file's large matrices: {', '.join(TYPES)}, or auto",
    )
    convert.add_argument("--out", type=Path, metavar="PATH", help="FILE.gguf, or the directory for vllm")
    convert.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="layout of GGUF files: workbench, one file for every runtime here; funasr, for FunASR's own C++ runtime "
        f"(default: {LAYOUTS[0]})",
    )
    convert.add_argument("--force", action="store_true", help="replace an existing GGUF file")
    convert.add_argument("--list", action="store_true", help="write nothing; print JSON of the types and their sizes")

    train = commands.add_parser("train-demo", help="train a demo model on spoken digits")
    [scale] = option_specs(Training)
    trainable = [name.replace("_", "-") for name, family in FAMILIES.items() if family.recipe]
    train.add_argument("family", choices=trainable, metavar="FAMILY", help=" or ".join(trainable))
    train.add_argument(
        "--data",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="folder of the Free Spoken Digit Dataset, a folder per speaker",
    )
    train.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="checkpoint directory to write; an earlier checkpoint in it is replaced",
    )
    train.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        help="folder for synthetic voices and training strings, for the next run",
    )
    train.add_argument(
        "--continue",
        dest="start",
        type=Path,
        metavar="FOLDER",
        help="go on from this checkpoint, with more short strings and with recordings in which no digit is said",
    )
    train.add_argument(
        "--other-speech",
        type=Path,
        metavar="FOLDER",
        help="with --continue: recordings of people who say no English digits, a folder per speaker",
    )
    train.add_argument(
        "--scale",
        type=float,
        metavar="SHARE",
        default=scale.default,
        help=help_of(scale),
    )
    train.add_argument(
        "--threads", type=int, metavar="N", default=os.cpu_count() or 1, help="threads of torch (default: all)"
    )
    add_train_lm(commands.add_parser("train-lm", help="train an n-gram language model on a text"))
    for name, each in commands.choices.items():
        finish(name, each)
    return whole


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Without TEXT, --audio and --messages, a terminal becomes a chat; its command /help lists what it can do."
    )
    asked = parser.add_argument_group("input and output")
    asked.add_argument("text", nargs="?", metavar="TEXT", help="what you say; - reads it from standard input")
    asked.add_argument(
        "--audio",
        action="append",
        default=[],
        metavar="FILE",
        help="a recording that you say, before the text; may be repeated; - reads standard input",
    )
    asked.add_argument("--system", metavar="TEXT", help="system message, at the beginning of the conversation")
    asked.add_argument(
        "--messages",
        type=Path,
        metavar="FILE.json",
        help="a conversation to go on with, as a list of messages; paths in it start from its folder",
    )
    asked.add_argument(
        "--out", type=Path, metavar="FILE.wav", help="write the answer's audio; an existing file is replaced"
    )
    asked.add_argument("--json", action="store_true", help="print the answer as JSON, its audio as base64 WAV")
    add_model(parser)
    add_options(parser, (CONVERSE,), chat=True, without=("system",))
    add_settings(parser)


def _add_conversation(parser: argparse._ActionsContainer) -> None:
    """Adds what a model that answers text and speech can be asked beside a text or a recording."""
    parser.add_argument(
        "--audio",
        action="append",
        default=[],
        metavar="FILE",
        help="for a model that answers speech, a recording that you say before the text; may be repeated",
    )
    parser.add_argument(
        "--messages",
        type=Path,
        metavar="FILE.json",
        help="for such a model, a conversation to go on with, as `workbench chat --messages` takes it",
    )


def _add_steps(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--steps",
        default="",
        metavar="first|all|N,M,...",
        help="for a model that writes token by token, decoding steps whose stages are wanted too, as steps.N.STAGE; "
        "step 1 reads the first token that was written (default: none, the prompt's pass alone)",
    )


def _add_embeddings(parser: argparse._ActionsContainer, required: bool = False) -> None:
    parser.add_argument(
        "--embedding",
        action="append",
        default=None if required else [],
        required=required,
        type=Path,
        metavar="FILE",
        help="replaces a placeholder in a language model's prompt: .npy, .npz, .pt or .safetensors, "
        "[tokens, hidden]; may be repeated",
    )
    parser.add_argument(
        "--tensor",
        metavar="NAME",
        action="append",
        default=[],
        help="name of the tensor, for a file with several; one name is for every such file, several are for each "
        "in order",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Exit status: 0 within tolerance, 1 beyond it (with --float64, also for a bug), 2 for a file that "
        "cannot be used or any other error."
    )
    files = ".safetensors, .npz, or a directory or .zip of .npy files"
    parser.add_argument("reference", metavar="REFERENCE", type=Path, help=f"the trace to compare with: {files}")
    parser.add_argument("candidate", metavar="CANDIDATE", type=Path, help="the trace to judge")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--profiles", action="store_true", help="add the error over positions and channels to the JSON")
    parser.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        help="expected difference (default: that of the coarsest arithmetic that the traces name)",
    )
    _add_tolerance(parser)
    parser.add_argument(
        "--stages", default="*", metavar="GLOB", help="which stages, such as 'encoder.*' (default: all)"
    )
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
        help="TOML or JSON file that maps the candidate's names and layouts to stages",
    )
    parser.add_argument("--force", action="store_true", help="compare even traces of different inputs or models")


def _add_parity(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Exit status: 0 all candidates within tolerance, 1 one beyond it, 2 one cannot be compared, or any other "
        "error, 3 none is available. With --baseline: 0 nothing got worse, 1 something did, 2 any other error."
    )
    side = "RUNTIME, RUNTIME:TYPE (gguf:q8_0, vllm:bfloat16), with +NAME=VALUE for its own settings and options"
    model = parser.add_argument_group("model and input")
    model.add_argument("model", metavar="M", help="a model's id (see: workbench models), a checkpoint or a GGUF file")
    model.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="an audio file or a prompt (- reads stdin); several, a folder of recordings, or a list of them (.txt with "
        "one on each line, .jsonl) for one verdict over all, which also finds faults near the noise",
    )
    _add_conversation(model)
    _add_embeddings(model)
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
        help="sides to compare with the reference; the flag may be repeated",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--report",
        type=Path,
        metavar="OUT.html",
        help="write a report with figures to one file; an existing file is replaced",
    )
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the traces in this folder")
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
        help="with --baseline: an error beyond its limit got worse if it is so many times as large (default: "
        "%(default)s)",
    )
    automatic.add_argument(
        "--junit", type=Path, metavar="OUT.xml", help="write the stages as test cases of JUnit XML; a file is replaced"
    )
    automatic.add_argument(
        "--summary",
        type=Path,
        metavar="OUT.md",
        help="write the verdicts as Markdown for a pull request, and the map of errors beside it as PNG",
    )
    judged = parser.add_argument_group("comparison and tolerance")
    judged.add_argument(
        "--stages", default="*", metavar="GLOB", help="which stages, such as 'encoder.*' (default: all)"
    )
    _add_steps(judged)
    judged.add_argument(
        "--isolated",
        action="store_true",
        help="compute every stage from the reference's input of that stage, or for a dump the reference's from the "
        "dump's, so that each shows only its own error (default: end to end, where errors accumulate)",
    )
    judged.add_argument(
        "--narrow",
        action="store_true",
        help="if the first stage in error is of a layer, trace that layer again with what is inside it, and name the "
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
        "q8_0, or the GGUF file that the port has read; auto: what the trace names, or what its values show (default: "
        "%(default)s)",
    )
    judged.add_argument(
        "--preset", choices=tuple(PRESETS), help="expected difference (default: that of each candidate's arithmetic)"
    )
    _add_tolerance(judged)
    add_options(parser, ANY)
    add_settings(
        parser, without=("dtype", "quantization", "stepwise", "weights", "summation")
    )  # each side sets these itself
