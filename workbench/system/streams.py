"""Repairs the standard streams of a program that was started with closed or unusual streams."""

from __future__ import annotations

import codecs
import os
import sys


def open_closed_streams() -> None:
    """Opens the null device for standard streams that are closed.

    Otherwise, the next opened file gets the number of a closed stream, and the messages of a library go into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one
            os.set_inheritable(opened, True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - until the program ends


def print_any_name() -> None:
    r"""Makes stdout print names of files that are not UTF-8: a byte 0xFF as `\udcff`, which JSON reads back."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and codecs.lookup(sys.stdout.encoding).name == "utf-8":
        reconfigure(errors="backslashreplace")
