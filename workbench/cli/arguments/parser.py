"""The argument parser of the `workbench` command, from a table of its commands.

The functions that add a command's arguments are in this file or in the modules that the table's imports name.
`models` adds the flags of models, `inputs` the inputs that several commands take. This file runs no
command; `workbench.cli.commands` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from workbench import __version__
from workbench.cli.arguments.checkpoints import add_convert, add_train_demo
from workbench.cli.arguments.comparisons import add_compare, add_parity
from workbench.cli.arguments.decoding import add_decode, add_train_lm
from workbench.cli.arguments.evaluation import add_evaluate
from workbench.cli.arguments.help_text import Parser, finish
from workbench.cli.arguments.inputs import add_embeddings, add_source, add_stages, add_steps, add_text_format
from workbench.cli.arguments.models import ANY, add_model, add_options, add_settings
from workbench.cli.arguments.report import add_report
from workbench.cli.arguments.server import add_app, add_key, add_serve
from workbench.cli.live import add_live
from workbench.cli.visualise import add_visualise
from workbench.families.family import CONVERSE
from workbench.families.language.directory import PLACEHOLDER
from workbench.text.exports import FORMATS as WRITERS

FORMATS = ("text", *(name for name in WRITERS if name != "txt"))


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line; its result holds the name of the command as `command`."""
    root_parser = Parser(
        prog="workbench", description="Run, compare and teach speech models over PyTorch, GGUF and vLLM."
    )
    root_parser.epilog = (
        "Each command explains itself: workbench COMMAND --help. Results go to stdout, progress and errors to stderr. "
        "Exit status: 2 bad input, 3 a runtime or a download that is not available, 1 anything else."
    )
    root_parser.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = root_parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for name, (does, add) in ARGUMENTS.items():
        command = commands.add_parser(name, help=does)
        add(command)
        finish(name, command)
    return root_parser


def _add_models(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench models`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench options`."""
    parser.add_argument("model", metavar="M", help="a model's id (see: workbench models), a checkpoint or a GGUF file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_transcribe(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench transcribe`."""
    files = parser.add_argument_group("input and output")
    files.add_argument("audio", nargs="*", metavar="AUDIO", help="audio files; - for one on standard input")
    files.add_argument("--format", choices=FORMATS, default="text", help="format of the output (default: %(default)s)")
    add_live(parser)
    add_model(parser)
    add_options(parser, ("transcribe",))
    add_settings(parser)


def _add_generate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench generate`."""
    files = parser.add_argument_group("input and output")
    files.add_argument("prompt", metavar="PROMPT", help="a text, or - to read it from standard input")
    add_text_format(files)
    add_model(parser)
    add_options(parser, ("generate",))
    add_settings(parser)


def _add_chat(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench chat`."""
    parser.description = (
        "Without TEXT, --audio and --messages, a terminal becomes a chat; its command /help lists what it can do."
    )
    group = parser.add_argument_group("input and output")
    group.add_argument("text", nargs="?", metavar="TEXT", help="your message; - reads it from standard input")
    group.add_argument(
        "--audio",
        action="append",
        default=[],
        metavar="FILE",
        help="a recording before the text of your message; may be repeated; - reads standard input",
    )
    group.add_argument("--system", metavar="TEXT", help="system message, at the beginning of the conversation")
    group.add_argument(
        "--messages",
        type=Path,
        metavar="FILE.json",
        help="a conversation to continue, as a list of messages; paths in it are relative to its folder",
    )
    group.add_argument(
        "--out", type=Path, metavar="FILE.wav", help="write the answer's audio; an existing file is replaced"
    )
    group.add_argument("--json", action="store_true", help="print the answer as JSON, its audio as base64 WAV")
    add_model(parser)
    add_options(parser, (CONVERSE,), chat=True, excluded=("system",))
    add_settings(parser)


def _add_inject(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench inject`."""
    files = parser.add_argument_group("input and output")
    add_embeddings(files, required=True)
    files.add_argument(
        "--prompt",
        required=True,
        metavar="TEXT",
        help=f"a text with {PLACEHOLDER} (unless the model names another placeholder) for each embedding, in order; "
        "- reads standard input",
    )
    add_text_format(files)
    add_model(parser)
    add_options(parser, ("generate",))
    add_settings(parser)


def _add_trace(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench trace`."""
    files = parser.add_argument_group("input and output")
    add_source(files)
    files.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="T.safetensors",
        help="file to write; an existing file is replaced",
    )
    add_stages(files)
    files.add_argument(
        "--given",
        type=Path,
        metavar="T.safetensors",
        help="another trace of this input: each stage is computed from its stages, not from the model's own",
    )
    add_steps(files)
    files.add_argument(
        "--follow",
        type=Path,
        metavar="T.safetensors",
        help="another trace, whose tokens or hypotheses the decoding steps read (default: those of the model itself)",
    )
    add_embeddings(files)
    add_model(parser)
    add_options(parser, ANY)
    add_settings(parser)


ARGUMENTS: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "app": ("start the page", add_app),
    "serve": ("answer OpenAI's routes and MCP for every model, without the page", add_serve),
    "key": ("add, list or remove API keys of a server", add_key),
    "models": ("list the models, their state on each runtime, and the sizes of GGUF files", _add_models),
    "options": ("list a model's options for transcribe, generate, chat and trace", _add_options),
    "transcribe": ("turn recordings into text", _add_transcribe),
    "generate": ("continue a text with a language model", _add_generate),
    "chat": ("talk with a model, in text and speech", _add_chat),
    "inject": ("continue a prompt that contains embeddings", _add_inject),
    "trace": ("save the stages of a model's computation", _add_trace),
    "compare": ("find the first stage at which two traces diverge", add_compare),
    "parity": ("run a model on several runtimes and compare them stage by stage", add_parity),
    "evaluate": ("run models over a corpus, and count their errors", add_evaluate),
    "report": ("write the report of an evaluation again, and its rows as a table", add_report),
    "decode": ("turn logits of CTC into text by beam search", add_decode),
    "visualise": ("draw what a model does with a recording", partial(add_visualise, tasks=ANY)),
    "convert": ("write a model's weights as one GGUF file, or as a directory for vLLM", add_convert),
    "train-demo": ("train a demo model on spoken digits", add_train_demo),
    "train-lm": ("train an n-gram language model on a text", add_train_lm),
}
"""Each command's help and the function that adds its arguments, in the order in which the help lists them."""
