"""The arguments that several commands share: sources, conversations, stages, embeddings, forms of a text."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_source(parser: argparse._ActionsContainer) -> None:
    """Adds the recording or prompt for the model; a conversation may replace it."""
    parser.add_argument(
        "source",
        nargs="?",
        metavar="AUDIO",
        help="an audio file, or a prompt for a language model; - reads standard input",
    )
    add_conversation(parser)


def add_conversation(parser: argparse._ActionsContainer) -> None:
    """Adds the inputs, besides a text or a recording, of models that answer text and speech."""
    parser.add_argument(
        "--audio",
        action="append",
        default=[],
        metavar="FILE",
        help="for a model that answers conversations, a recording before the text of your message; may be repeated",
    )
    parser.add_argument(
        "--messages",
        type=Path,
        metavar="FILE.json",
        help="for such a model, a conversation to continue, in the form of `workbench chat --messages`",
    )


def add_stages(parser: argparse._ActionsContainer) -> None:
    """Adds the choice of stages."""
    parser.add_argument(
        "--stages", default="*", metavar="GLOB", help="which stages, such as 'encoder.*' (default: all)"
    )


def add_steps(parser: argparse._ActionsContainer) -> None:
    """Adds the choice of decoding steps whose stages are recorded."""
    parser.add_argument(
        "--steps",
        default="",
        metavar="first|all|N,M,...",
        help="for a model that writes token by token: also record these decoding steps, as stages steps.N.STAGE (in a "
        "beam search steps.N.beams.B.STAGE); step 1 reads the first token that was written (default: only the "
        "pass over the prompt)",
    )


def add_embeddings(parser: argparse._ActionsContainer, required: bool = False) -> None:
    """Adds the embeddings for the placeholders of a prompt."""
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


def add_text_format(parser: argparse._ActionsContainer) -> None:
    """Adds the format of a text that a language model writes."""
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="format of the output (default: text)"
    )
