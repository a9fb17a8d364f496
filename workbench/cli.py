"""The `workbench` command. Results go to stdout; progress and errors, one line each, to stderr.

Exit status: 0 done, 2 bad input, 3 a runtime or source that is not available, 1 anything else. This file parses and
prints; what it prints is computed elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench import __version__
from workbench.errors import BadInput, SessionDied, WorkbenchError
from workbench.exports import FORMATS as WRITERS
from workbench.exports import find_format
from workbench.families import FAMILIES
from workbench.options import OptionSpec, build_options, option_specs
from workbench.registry import OpenSession, Registry
from workbench.runtimes import RUNTIMES
from workbench.session import Progress, StageFilter, Transcript

INTERRUPTED = 130  # what shells give for Ctrl-C
FORMATS = ("text", *(name for name in WRITERS if name != "txt"))
TRAINABLE = ("sensevoice", "paraformer")
DEBUG = "WORKBENCH_DEBUG"  # an environment variable: where it is set, errors come with their traceback


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
        print(end="", flush=True)
        return status
    except WorkbenchError as error:
        return _failed(error, str(error), error.exit_status)
    except BrokenPipeError:
        _mute_stdout()  # its reader has gone, as `head` does; nothing more can be said
        return 1
    except KeyboardInterrupt:
        _say("workbench: stopped")
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError):
            _mute_stdout()  # it may be what failed: a full disk
        return _failed(error, f"{type(error).__name__}: {error}; {DEBUG}=1 shows where", 1)


def _failed(error: Exception, sentence: str, status: int) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    _say(f"workbench: {sentence}")
    return status


def _mute_stdout() -> None:
    """Keeps the interpreter from failing once more when it writes out what is left at the end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(sentence: str) -> None:
    """Prints it as one line, whatever file names it quotes."""
    print(re.sub(r"\s*[\r\n]\s*", " ", sentence), file=sys.stderr, flush=True)


# What can be asked.


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for every other bad input."""
        _say(f"{self.prog}: {message}; see {self.prog} --help")
        raise SystemExit(BadInput.exit_status)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="workbench", description="Run, compare and teach speech models over PyTorch, GGUF and vLLM.")
    parser.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    app = commands.add_parser("app", help="start the page")
    app.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    app.add_argument("--port", type=int, help="port to listen on (default: 7860, or the next that is free)")
    app.set_defaults(run=_app)

    models = commands.add_parser("models", help="list models, and per runtime whether they are ready")
    models.add_argument("--json", action="store_true", help="print JSON")
    models.set_defaults(run=_models)

    transcribe = commands.add_parser("transcribe", help="write down what is said in recordings")
    transcribe.add_argument("audio", nargs="+", metavar="AUDIO", help="audio files")
    _add_model(transcribe)
    transcribe.add_argument("--format", choices=FORMATS, default="text", help="of the output (default: %(default)s)")
    _add_options(transcribe)
    transcribe.set_defaults(run=_transcribe)

    trace = commands.add_parser("trace", help="save the stages of a model's computation")
    trace.add_argument("audio", metavar="AUDIO", help="an audio file")
    _add_model(trace)
    trace.add_argument("--out", required=True, metavar="T.safetensors", help="file to write")
    trace.add_argument("--stages", default="*", metavar="GLOB", help="which stages, such as 'encoder.*' (default: all)")
    _add_options(trace)
    trace.set_defaults(run=_trace)

    train = commands.add_parser("train-demo", help="train a demo model on spoken digits")
    train.add_argument("family", choices=TRAINABLE, metavar="FAMILY", help=" or ".join(TRAINABLE))
    train.add_argument(
        "--data", required=True, type=Path, help="folder of the Free Spoken Digit Dataset, a folder per speaker"
    )
    train.add_argument("--out", required=True, type=Path, help="checkpoint directory to write")
    train.add_argument(
        "--cache", type=Path, help="folder that keeps synthetic voices and training strings for the next run"
    )
    train.add_argument("--updates", type=int, help="training steps (default: as the shipped demo)")
    train.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch (default: %(default)s)")
    train.set_defaults(run=_train_demo)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        "-m",
        required=True,
        metavar="M",
        help="a model's id (see: workbench models) or a checkpoint directory",
    )
    parser.add_argument("--runtime", "-r", default="pytorch", choices=tuple(RUNTIMES), help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, help="processor threads (default: as the runtime chooses)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ... (default: %(default)s)")


def _add_options(parser: argparse.ArgumentParser) -> None:
    """The options of all families; which of them a model has is checked when it is known."""
    group = parser.add_argument_group("options of the model")
    for spec in _all_options():
        flag = "--" + spec.name.replace("_", "-")
        if spec.kind is bool:
            group.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=None, dest=f"option_{spec.name}", help=spec.help
            )
        else:
            kind = spec.kind if spec.kind in (int, float) else str
            group.add_argument(
                flag, type=kind, default=None, dest=f"option_{spec.name}", metavar=_metavar(spec), help=spec.help
            )


def _metavar(spec: OptionSpec) -> str:
    return "{" + ",".join(spec.choices) + "}" if spec.choices else spec.name.split("_")[-1].upper()


def _all_options() -> list[OptionSpec]:
    found: dict[str, OptionSpec] = {}
    for family in FAMILIES.values():
        for spec in option_specs(family.options_class):
            found.setdefault(spec.name, spec)
    return list(found.values())


def _given_options(parsed: argparse.Namespace) -> dict[str, Any]:
    prefix = "option_"
    return {
        name[len(prefix) :]: value
        for name, value in vars(parsed).items()
        if name.startswith(prefix) and value is not None
    }


# What is done.


def _app(parsed: argparse.Namespace) -> int:
    import runpy
    from importlib.util import find_spec

    from workbench.errors import Unavailable

    if find_spec("gradio") is None or find_spec("panels") is None:
        raise Unavailable("the page needs gradio and this project's panels; in a checkout of it, run: make app")
    given = {"--host": parsed.host, "--port": parsed.port}
    words = [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]
    sys.argv = ["workbench app", *words]
    # Started like a program of its own: nothing in the library depends on the page.
    runpy.run_module("panels", run_name="__main__")
    return 0


def _models(parsed: argparse.Namespace) -> int:
    registry = Registry()
    rows = []
    for card in registry.cards():
        runtimes = {name: registry.availability(card, name) for name in RUNTIMES}
        rows.append((card, runtimes))
    if parsed.json:
        listed = [
            {
                "id": card.id,
                "name": card.name,
                "family": card.family,
                "languages": card.languages,
                "tasks": card.tasks,
                "licence": card.licence,
                "source": dict(card.source),
                "runtimes": {name: {"ready": state.ready, "reason": state.reason} for name, state in runtimes.items()},
            }
            for card, runtimes in rows
        ]
        print(json.dumps(listed, indent=2, ensure_ascii=False))
        return 0
    for card, runtimes in rows:
        languages = ", ".join(card.languages)
        print(f"{card.id}: {card.name}" + (f" ({languages})" if languages else ""))
        for name, state in runtimes.items():
            print(f"  {name}: {'ready' if state.ready else state.reason}")
    return 0


def _transcribe(parsed: argparse.Namespace) -> int:
    writer = find_format(parsed.format)
    if len(parsed.audio) > 1 and not writer.several:
        raise BadInput(
            f"a {parsed.format} file holds one recording, and {len(parsed.audio)} are given; run one at a time"
        )
    done: dict[int, Transcript] = {}
    failures = []
    with _opened(parsed) as (session, options):
        for number, path in enumerate(parsed.audio):
            try:
                done[number] = transcript = _follow(session, path, options)
            except (BadInput, SessionDied) as error:
                if len(parsed.audio) == 1:
                    raise
                # The other recordings are worth having; the status says that one was not.
                failures.append(_failed(error, str(error), error.exit_status))
                continue
            for note in transcript.notes:
                _say(f"{Path(path).name}: {note}")
            if parsed.format == "text":
                print(transcript.text, flush=True)
            elif parsed.format == "json":
                print(writer.write(transcript), end="", flush=True)
    if parsed.format not in ("text", "json") and done:
        names = [parsed.audio[number] for number in done] if writer.several and len(parsed.audio) > 1 else []
        print(writer.write(list(done.values()), names), end="")
    return failures[0] if failures else 0


def _trace(parsed: argparse.Namespace) -> int:
    out = Path(parsed.out)
    StageFilter(parsed.stages)
    if out.is_dir() or not out.parent.is_dir():
        raise BadInput(f"{out} is no place for a file; expected the name of one in a folder that exists")
    with _opened(parsed) as (session, options):
        trace = session.trace(parsed.audio, stages=parsed.stages, **options)
    trace.save(out)
    for stage, array in trace.items():
        shape = "×".join(map(str, array.shape)) or str(array)
        print(f"{stage}\t{shape}\t{array.dtype if array.dtype.kind != 'U' else 'text'}")
    return 0


def _train_demo(parsed: argparse.Namespace) -> int:
    from dataclasses import replace

    from workbench.training.demo import DemoOptions, train_demo

    for name in ("updates", "threads"):
        value = getattr(parsed, name)
        if value is not None and value < 1:
            raise BadInput(f"--{name} is {value}; expected at least 1")
    options = DemoOptions(threads=parsed.threads, workers=parsed.threads, cache=parsed.cache)
    if parsed.updates:
        finishing = replace(options.finishing, updates=max(1, parsed.updates // 3))  # as in the shipped demos
        options = replace(options, training=replace(options.training, updates=parsed.updates), finishing=finishing)
    for row in train_demo(parsed.family, parsed.data, parsed.out, options, _say):
        print(f"{row.word_error_rate:.1%}\t{row.condition}\t{row.digits} digits")
    return 0


@contextlib.contextmanager
def _opened(parsed: argparse.Namespace) -> Iterator[tuple[OpenSession, dict[str, Any]]]:
    """The session and the options for its calls, which are checked before the model is loaded."""
    with Registry() as registry:
        options = _given_options(parsed)
        build_options(registry.options_class(parsed.model), registry.resolve_options(options), parsed.model)
        progress = _Line()
        progress.show(f"loading {parsed.model}")
        try:
            session = registry.open(
                parsed.model,
                runtime=parsed.runtime,
                threads=parsed.threads,
                device=parsed.device,
                on_progress=progress.fetching,
            )
        finally:
            progress.clear()
        yield session, options


def _follow(session: OpenSession, path: str, options: dict[str, Any]) -> Transcript:
    line = _Line()
    try:
        for event in session.stream(path, **options):
            if isinstance(event, Progress):
                line.show(f"{Path(path).name}: {event.activity}, {event.done:.0f} of {event.total:.0f} s")
            elif isinstance(event, Transcript):
                return event
    finally:
        line.clear()
    raise WorkbenchError(f"{Path(path).name}: the session ended without a transcript")


class _Line:
    """One line of progress on a terminal, written over itself; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self.shown = False

    def show(self, text: str) -> None:
        """Replaces the line."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self.shown = True

    def fetching(self, share: float, activity: str) -> None:
        """As a registry's progress callback."""
        self.show(f"{activity} ({share:.0%})")

    def clear(self) -> None:
        """Takes the line away."""
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.shown = False


if __name__ == "__main__":
    sys.exit(main())
