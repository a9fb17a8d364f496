"""A chat in a terminal: the model answers each line that the user writes. Lines that begin with a slash are commands.

Ctrl-C stops an answer and keeps the answer so far. Ctrl-D ends the chat.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.cli.chat_answer import Say, print_answer, report, sound_place, write_sound
from workbench.cli.chat_messages import user_message
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.phrases import counted
from workbench.registry.handle import OpenSession
from workbench.session.conversation import Answer
from workbench.session.values import AudioSource
from workbench.system.atomic_files import check_not_read
from workbench.system.endings import Ended, is_ended, polled_signals

PROMPT = "> "
HELP = """\
/audio FILE     put a recording into your next message; an empty line sends it without a text
/system TEXT    set the system message of this conversation; without TEXT there is none
/save FILE.wav  write the audio of the last answer
/new            forget the conversation
/quit           end the chat, as Ctrl-D does
Ctrl-C stops an answer and keeps the answer so far; at the prompt, it drops the recordings of your next message."""


class TerminalChat:
    """One conversation after another with a model, in a terminal.

    Args:
        options: of every answer.
        place: the WAV file that each answer's audio replaces, if any.
        system: the system message; empty without one.
        say: prints a sentence on stderr.
    """

    def __init__(self, session: OpenSession, options: Mapping[str, Any], place: Path | None, system: str, say: Say):
        self.session = session
        self.options = dict(options)
        self.place = place
        self.system = system
        self.say = say
        self.messages: list[Mapping[str, Any]] = []  # without the system message
        # Of the next message: samples and their rate. A user may record each turn to the same file.
        self.recordings: list[AudioSource] = []
        self.last: Answer | None = None
        self.commands: Mapping[str, Callable[[str], None]] = {
            "/audio": self._attach,
            "/system": self._set_system,
            "/save": self._save,
            "/new": self._forget,
            "/help": self._help,
        }

    def run(self) -> int:
        """Reads and answers until the user ends the chat; returns the exit status."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (gives `input` a history and keys for editing)
        self.say(f"{self.session.model} on {self.session.runtime}; /help lists the commands, Ctrl-D ends the chat")
        while True:
            try:
                with polled_signals():
                    line = input(PROMPT).strip()
            except EOFError:
                print(flush=True)
                return 0
            except KeyboardInterrupt:
                print(flush=True)
                self.recordings.clear()
                if is_ended():
                    raise
                continue
            except UnicodeDecodeError as error:
                self.say(f"workbench: the line is not {error.encoding}, the encoding of this terminal; type it again")
                continue
            if line == "/quit":
                return 0
            try:
                self._take(line)
            except WorkbenchError as error:
                self.say(f"workbench: {error}")  # and the chat goes on
                if self.recordings:
                    count = counted(len(self.recordings), "recording")
                    self.say(f"{count} would go with your next message; Ctrl-C drops what you added")
            if is_ended():
                raise Ended  # an answer that was stopped keeps the interrupt to itself

    def _take(self, line: str) -> None:
        word, _, argument = line.partition(" ")
        if line.startswith("/"):
            if word not in self.commands:
                raise BadInput(f"there is no command {word:.40}; expected one of {', '.join(self.commands)}, /quit")
            self.commands[word](argument.strip())
        elif line or self.recordings:
            self._answer(line)

    def _answer(self, text: str) -> None:
        """Asks the model. A question that the model refuses does not become part of the conversation."""
        messages = [*self.messages, user_message(text, self.recordings)]
        system = [{"role": "system", "content": self.system}] if self.system else []
        answer = print_answer(self.session, [*system, *messages], self.options, True, self.say)
        self.recordings.clear()
        self.messages = [*messages, answer.message()]
        self.last = answer
        if answer.finish == "cancelled":
            self.say("stopped; the answer so far stays in the conversation")
        report(answer, self.place, self.say, "/save FILE.wav")

    def _attach(self, name: str) -> None:
        if not name:
            raise BadInput("no file is named; expected /audio and the path of a recording")
        path = _path(name)
        from workbench.audio.read import read

        if self.place:
            check_not_read("--out", self.place, [path])
        recording = read(path)
        self.recordings.append((recording.samples, recording.sample_rate))
        for note in recording.notes:
            self.say(f"{path.name}: {note}")
        self.say(f"{path.name}, {recording.seconds:.1f} s, goes with your next message; an empty line sends it alone")

    def _set_system(self, text: str) -> None:
        self.system = text
        self.say("the system message is set" if text else "there is no system message")

    def _save(self, name: str) -> None:
        if self.last is None or self.last.audio is None:
            raise BadInput("there is no audio to save; the last answer has none")
        if not name:
            raise BadInput("no file is named; expected /save and the name of a WAV file")
        place = sound_place(_path(name))
        write_sound(self.last, place)
        self.say(f"wrote {place}")

    def _forget(self, _: str) -> None:
        self.messages, self.last = [], None
        self.recordings.clear()
        self.say("the conversation is forgotten")

    def _help(self, _: str) -> None:
        print(HELP, flush=True)


def _path(name: str) -> Path:
    """Returns the path that a command names. A terminal quotes or escapes the name of a file that is dropped on it."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    try:
        words = shlex.split(name)
    except ValueError:  # a quote without an end is part of the name
        return path
    return Path(words[0]).expanduser() if len(words) == 1 else path
