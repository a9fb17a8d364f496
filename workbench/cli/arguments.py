"""The argument parser of the `workbench` command.

`workbench.cli.model_flags` adds the flags of models, `input_arguments` what several commands ask a model, and
`comparison_arguments` the arguments of `compare` and `parity`. This file runs nothing; `workbench.cli.commands` does.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from workbench import __version__
from workbench.cli.comparison_arguments import add_compare, add_parity
from workbench.cli.decoding_arguments import add_decode, add_train_lm
from workbench.cli.evaluate_arguments import add_evaluate
from workbench.cli.help_text import Parser, finish
from workbench.cli.input_arguments import add_conversation, add_embeddings, add_steps
from workbench.cli.live import add_live
from workbench.cli.model_commands import Training
from workbench.cli.model_flags import ANY, add_model, add_options, add_settings, help_of
from workbench.cli.report_arguments import add_report
from workbench.cli.visualise import add_visualise
from workbench.conversion import LAYOUTS
from workbench.core.options import option_specs
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE
from workbench.families.language import PLACEHOLDER
from workbench.formats.quantization import TYPES
from workbench.serving.flags import add_opening_arguments
from workbench.text.exports import FORMATS as WRITERS

FORMATS = ("text", *(name for name in WRITERS if name != "txt"))
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
    add_opening_arguments(app)

    serve = commands.add_parser("serve", help="answer OpenAI's routes and MCP for every model, without the page")
    serve.description = (
        "The routes are under /v1; /mcp has tools for assistants that speak MCP (the model context protocol); /health, "
        "/ready and /metrics say how the server is. The page has the same routes."
    )
    serve.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", help="port to listen on, 0 for any that is free (default: 8000, or the next free one)")
    add_opening_arguments(serve, page=False)

    key = commands.add_parser("key", help="add, list or remove API keys of a server")
    actions = key.add_subparsers(dest="action", metavar="action", required=True)
    for action, does in (("add", "make a key and print it once"), ("remove", "remove a key")):
        actions.add_parser(action, help=does).add_argument("name", help="a name for whoever has the key")
    actions.add_parser("list", help="list the names of the keys, and when each was made")

    models = commands.add_parser(
        "models", help="list the models, their state on each runtime, and the sizes of GGUF files"
    )
    models.add_argument("--json", action="store_true", help="print JSON")

    options = commands.add_parser("options", help="list a model's options for transcribe, generate, chat and trace")
    options.add_argument("model", metavar="M", help="a model's id (see: workbench models), a checkpoint or a GGUF file")
    options.add_argument("--json", action="store_true", help="print JSON")

    transcribe = commands.add_parser("transcribe", help="turn recordings into text")
    files = transcribe.add_argument_group("input and output")
    files.add_argument("audio", nargs="*", metavar="AUDIO", help="audio files; - for one on standard input")
    files.add_argument("--format", choices=FORMATS, default="text", help="format of the output (default: %(default)s)")
    add_live(transcribe)
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
    add_embeddings(files, required=True)
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
    add_conversation(files)
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
    add_steps(files)
    files.add_argument(
        "--follow",
        type=Path,
        metavar="T.safetensors",
        help="another trace, whose tokens or hypotheses the decoding steps read (default: those of the model itself)",
    )
    add_embeddings(files)
    add_model(trace)
    add_options(trace, ANY)
    add_settings(trace)

    add_compare(commands.add_parser("compare", help="find the first stage at which two traces diverge"))

    add_parity(commands.add_parser("parity", help="run a model on several runtimes and compare them stage by stage"))

    add_evaluate(commands.add_parser("evaluate", help="run models over a corpus, and count their errors"))
    add_report(commands.add_parser("report", help="write the report of an evaluation again, and its rows as a table"))

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
    scale, seed = option_specs(Training)
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
    train.add_argument("--seed", type=int, metavar="N", default=seed.default, help=help_of(seed))
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
