"""What can be asked of the `workbench` command: its parser, and the options of all families as flags.

This file runs nothing; `workbench.cli` does what was asked.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from workbench import __version__
from workbench.conversion import LAYOUTS
from workbench.conversion.types import TYPES
from workbench.errors import BadInput
from workbench.exports import FORMATS as WRITERS
from workbench.families import FAMILIES
from workbench.families.language import PLACEHOLDER
from workbench.opening import SETTINGS
from workbench.options import OptionSpec, option_specs
from workbench.parity.presets import MEASURES, PRESETS
from workbench.runtimes import RUNTIMES

FORMATS = ("text", *(name for name in WRITERS if name != "txt"))
SHORT = {"quantization": ("-q",)}
TARGETS = ("gguf", "vllm")  # that checkpoints are converted for
TRAINABLE = ("sensevoice", "paraformer", "funasr-nano", "fireredasr")


def one_line(sentence: str) -> str:
    """The sentence without line breaks, whatever file names it quotes."""
    return re.sub(r"\s*[\r\n]\s*", " ", sentence)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for every other bad input."""
        self.exit(BadInput.exit_status, one_line(f"{self.prog}: {message}; see {self.prog} --help") + "\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line; what it gives has the name of the command as `command`."""
    whole = _Parser(prog="workbench", description="Run, compare and teach speech models over PyTorch, GGUF and vLLM.")
    whole.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = whole.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")

    app = commands.add_parser("app", help="start the page")
    app.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    app.add_argument("--port", type=int, help="port to listen on (default: 7860, or the next that is free)")

    models = commands.add_parser(
        "models", help="list models, and per runtime whether they are ready; for gguf, sizes of files"
    )
    models.add_argument("--json", action="store_true", help="print JSON")

    transcribe = commands.add_parser("transcribe", help="write down what is said in recordings")
    transcribe.add_argument("audio", nargs="+", metavar="AUDIO", help="audio files")
    _add_model(transcribe)
    transcribe.add_argument("--format", choices=FORMATS, default="text", help="of the output (default: %(default)s)")
    _add_options(transcribe)

    generate = commands.add_parser("generate", help="write on after a text with a language model")
    generate.add_argument("prompt", metavar="PROMPT", help="a text, or - to read it from stdin")
    _add_model(generate)
    generate.add_argument("--format", choices=("text", "json"), default="text", help="(default: %(default)s)")
    _add_options(generate, writing=True)

    inject = commands.add_parser("inject", help="write on after a text with embeddings in it with a language model")
    _add_embeddings(inject, required=True)
    inject.add_argument(
        "--prompt",
        required=True,
        metavar="TEXT",
        help=f"with {PLACEHOLDER}, where the model names no other placeholder, for each embedding in order; - reads it "
        "from stdin",
    )
    _add_model(inject)
    inject.add_argument("--format", choices=("text", "json"), default="text", help="(default: %(default)s)")
    _add_options(inject, writing=True)

    trace = commands.add_parser("trace", help="save the stages of a model's computation")
    trace.add_argument("source", metavar="AUDIO", help="an audio file; of a language model, a prompt (- reads stdin)")
    _add_model(trace)
    trace.add_argument("--out", required=True, metavar="T.safetensors", help="file to write")
    trace.add_argument("--stages", default="*", metavar="GLOB", help="which stages, such as 'encoder.*' (default: all)")
    trace.add_argument(
        "--given",
        type=Path,
        metavar="T.safetensors",
        help="another trace of this input, whose stages to go on from in place of each stage's own values",
    )
    _add_embeddings(trace)
    _add_options(trace)

    _add_compare(commands.add_parser("compare", help="find the first stage at which two traces part ways"))

    _add_parity(commands.add_parser("parity", help="run a model on several runtimes and compare them stage by stage"))

    convert = commands.add_parser("convert", help="write a checkpoint's weights as gguf or vllm takes them")
    convert.add_argument("model", metavar="M", help="a model's id (see: workbench models) or a checkpoint directory")
    convert.add_argument(
        "--for",
        dest="target",
        choices=TARGETS,
        default=TARGETS[0],
        help="gguf, a GGUF file; vllm, a directory for `vllm serve` (default: %(default)s)",
    )
    convert.add_argument(
        "--quantization", "-q", metavar="TYPE", help=f"of a GGUF file's large matrices: {', '.join(TYPES)}, or auto"
    )
    convert.add_argument("--out", type=Path, metavar="PATH", help="FILE.gguf, or the directory for vllm")
    convert.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="of GGUF files: workbench, one file for every runtime here; funasr, as FunASR's own C++ runtime reads it "
        f"(default: {LAYOUTS[0]})",
    )
    convert.add_argument("--list", action="store_true", help="write nothing; print JSON of the types and their bytes")

    train = commands.add_parser("train-demo", help="train a demo model on spoken digits")
    train.add_argument("family", choices=TRAINABLE, metavar="FAMILY", help=" or ".join(TRAINABLE))
    train.add_argument(
        "--data", required=True, type=Path, help="folder of the Free Spoken Digit Dataset, a folder per speaker"
    )
    train.add_argument("--out", required=True, type=Path, help="checkpoint directory to write")
    train.add_argument(
        "--cache", type=Path, help="folder that keeps synthetic voices and training strings for the next run"
    )
    train.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="of the shipped demo's training steps; 0.1 trains a worse model sooner (default: %(default)s)",
    )
    train.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch (default: %(default)s)")
    return whole


def _add_embeddings(parser: argparse.ArgumentParser, required: bool = False) -> None:
    parser.add_argument(
        "--embedding",
        action="append",
        default=None if required else [],
        required=required,
        type=Path,
        metavar="FILE",
        help="stands for a placeholder in a language model's prompt: .npy, .npz, .pt or .safetensors, "
        "[tokens, hidden]; may be repeated",
    )
    parser.add_argument(
        "--tensor",
        metavar="NAME",
        action="append",
        default=[],
        help="which one of a file of embeddings that holds several; given once, it is that of every such file, else of "
        "each in order",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Exit status: 0 within tolerance, 1 beyond it (with --float64, also where there is a bug), 2 where a file "
        "cannot be used, or anything else went wrong."
    )
    files = ".safetensors, .npz, or a directory or .zip of .npy files"
    parser.add_argument("reference", metavar="REFERENCE", type=Path, help=f"the trace to compare with: {files}")
    parser.add_argument("candidate", metavar="CANDIDATE", type=Path, help="the trace to judge")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--profiles", action="store_true", help="in the JSON, also the error over positions and channels"
    )
    parser.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        help="what to expect (default: of the coarsest arithmetic that the traces name)",
    )
    _add_tolerance(parser)
    parser.add_argument(
        "--stages", default="*", metavar="GLOB", help="which stages, such as 'encoder.*' (default: all)"
    )
    parser.add_argument(
        "--float64", type=Path, metavar="TRACE", help="of the reference in float64, to tell noise from a bug"
    )
    parser.add_argument(
        "--same-precision",
        type=Path,
        metavar="TRACE",
        help="of the reference's model in the candidate's bfloat16 or float16 (workbench trace --stepwise), beside "
        "--float64: what rounds more than that is a bug",
    )


def _add_tolerance(parser: argparse.ArgumentParser) -> None:
    """How candidates are read and held against the reference."""
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="[GLOB:]MEASURE=LIMIT,...",
        help=f"another limit, of all stages or of some; may be repeated; measures: {', '.join(MEASURES)}",
    )
    parser.add_argument(
        "--mapping", type=Path, metavar="FILE", help="TOML or JSON: the candidate's own names and layouts for stages"
    )
    parser.add_argument(
        "--force", action="store_true", help="compare traces of different inputs or models all the same"
    )


def _add_parity(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Exit status: 0 all candidates within tolerance, 1 one beyond it, 2 where one cannot be compared, or anything "
        "else went wrong, 3 where none is available."
    )
    side = "RUNTIME, RUNTIME:TYPE (gguf:q8_0, vllm:bfloat16), with +NAME=VALUE for settings and options of its own"
    parser.add_argument("model", metavar="M", help="a model's id (see: workbench models), a checkpoint or a GGUF file")
    parser.add_argument("source", metavar="AUDIO", help="an audio file; of a language model, a prompt (- reads stdin)")
    parser.add_argument(
        "--reference", default="pytorch", metavar="SIDE", help=f"{side}, or a trace (default: %(default)s, in float32)"
    )
    parser.add_argument(
        "--candidates",
        action="extend",
        type=_words,
        required=True,
        metavar="SIDE,...",
        help="what to compare with it; the flag may be repeated",
    )
    parser.add_argument("--report", type=Path, metavar="OUT.html", help="write all of it, with pictures, to one file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--stages", default="*", metavar="GLOB", help="which stages, such as 'encoder.*' (default: all)"
    )
    parser.add_argument(
        "--isolated",
        action="store_true",
        help="compute every stage from the reference's input of that stage, so that each shows its own error alone "
        "(default: end to end, where errors accumulate)",
    )
    parser.add_argument(
        "--float64",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run the reference in float64 too, to tell noise from a bug (default: yes, on pytorch)",
    )
    parser.add_argument(
        "--same-precision",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="for candidates in bfloat16 or float16, run the reference's model in that too, and call what rounds more "
        "than that a bug (default: yes, with --float64)",
    )
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), help="what to expect (default: of each candidate's arithmetic)"
    )
    _add_tolerance(parser)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the traces there")
    _add_embeddings(parser)
    _add_settings(parser, without=("dtype", "quantization", "stepwise"))
    _add_options(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        "-m",
        required=True,
        metavar="M",
        help="a model's id (see: workbench models), a checkpoint directory or a GGUF file",
    )
    parser.add_argument(
        "--runtime",
        "-r",
        choices=tuple(RUNTIMES),
        help="(default: gguf for a GGUF file, vllm for a server, pytorch for the others)",
    )
    _add_settings(parser)


def _add_settings(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """The settings of all runtimes but for some; which of them a runtime has is checked when it is known."""
    group = parser.add_argument_group("how it computes", "where not given, as the model's card says, else the default")
    for spec in SETTINGS.values():
        if spec.name in without:
            continue
        having = [name for name, runtime in RUNTIMES.items() if spec.name in runtime.settings]
        where = "" if len(having) == len(RUNTIMES) else f"; on {' and '.join(having)}"
        flags = ["--" + spec.name.replace("_", "-"), *SHORT.get(spec.name, ())]
        if spec.kind is bool:
            group.add_argument(*flags, action=argparse.BooleanOptionalAction, default=None, help=spec.help + where)
            continue
        usual = "" if spec.default is None else f" (default: {spec.default})"
        metavar = None if spec.choices else _metavar(spec) if spec.kind is str else "N"
        group.add_argument(
            *flags, type=spec.kind, choices=spec.choices or None, metavar=metavar, help=spec.help + where + usual
        )


def _add_options(parser: argparse.ArgumentParser, writing: bool = False) -> None:
    """The options of all families; which of them a model has is checked when it is known.

    Args:
        writing: the help tells of those alone that go on from texts.
    """
    group = parser.add_argument_group("options of the model")
    told = {spec.name for spec in _all_options(writing)}
    for spec in _all_options():
        flag, dest = "--" + spec.name.replace("_", "-"), f"option_{spec.name}"
        text = spec.help if spec.name in told else argparse.SUPPRESS
        if spec.kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, dest=dest, help=text)
        elif spec.kind is tuple:
            # One value per flag, so that it never takes the recordings behind it.
            several = f"{text}; separated by commas, and the flag may be repeated" if spec.name in told else text
            group.add_argument(
                flag, action="extend", type=_words, default=None, dest=dest, metavar="WORD,...", help=several
            )
        else:
            group.add_argument(flag, type=spec.kind, default=None, dest=dest, metavar=_metavar(spec), help=text)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _metavar(spec: OptionSpec) -> str:
    return "{" + ",".join(spec.choices) + "}" if spec.choices else spec.name.split("_")[-1].upper()


def _all_options(writing: bool = False) -> list[OptionSpec]:
    """The options of all families, or of those that go on from texts."""
    found: dict[str, OptionSpec] = {}
    for family in FAMILIES.values():
        if writing and not family.reads_text:
            continue
        for spec in option_specs(family.options_class):
            known = found.setdefault(spec.name, spec)
            if known.choices != spec.choices:  # each model says what it knows where it is asked for something else
                found[spec.name] = replace(known, choices=())
    return list(found.values())


def given_settings(parsed: argparse.Namespace) -> dict[str, Any]:
    """The settings of the session that were given, by name."""
    return {name: getattr(parsed, name) for name in SETTINGS if getattr(parsed, name, None) is not None}


def given_options(parsed: argparse.Namespace) -> dict[str, Any]:
    """The options of the model that were given, by name."""
    prefix = "option_"
    return {
        name[len(prefix) :]: value
        for name, value in vars(parsed).items()
        if name.startswith(prefix) and value is not None
    }
