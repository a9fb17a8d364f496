"""The command `workbench chat`: one answer to a text, a recording or a whole conversation.

Text streams to stdout; the answer's audio goes to a file. `workbench.cli.chat_terminal` has the chat in a terminal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from workbench.cli.chat_answer import Say, print_answer, report, sound_place
from workbench.cli.chat_messages import conversation_of, files_in
from workbench.cli.standard_input import DASH, recording_paths
from workbench.core.errors import BadInput
from workbench.registry.handle import OpenSession
from workbench.system.atomic_files import check_not_read

Opened = Callable[[], AbstractContextManager[tuple[OpenSession, dict[str, Any]]]]
"""Opens the session, and gives the options of its calls."""


def chat(parsed: argparse.Namespace, opened: Opened, say: Say) -> int:
    """Answers once, or chats in a terminal until the user ends the chat; returns the exit status."""
    place = sound_place(parsed.out) if parsed.out else None
    if parsed.text is None and not parsed.audio and parsed.messages is None:
        if parsed.json or sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
            raise BadInput("there is nothing to answer; expected a text, --audio or --messages")
        from workbench.cli.chat_terminal import TerminalChat

        with opened() as (session, options):
            return TerminalChat(session, options, place, parsed.system or "", say).run()
    if parsed.text == DASH and DASH in parsed.audio:
        raise BadInput("- stands for standard input, and both the text and --audio name it; expected one of them")
    with recording_paths(parsed.audio) as paths:
        messages = conversation_of(parsed.text, paths, parsed.system, parsed.messages)
        if place:
            check_not_read("--out", place, files_in(messages))
        with opened() as (session, options):
            answer = print_answer(session, messages, options, not parsed.json, say)
            report(answer, place, say)
            if parsed.json:
                print(answer.to_json(), flush=True)
            if answer.finish == "cancelled":
                raise KeyboardInterrupt  # the answer so far is printed and written
    return 0
