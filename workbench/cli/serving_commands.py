"""The commands that serve others: `app`, `serve`, and `key`, which changes the API keys of a server."""

from __future__ import annotations

import argparse
import sys
import time

from workbench.core.packages import PAGE, PAGE_INSTALL, SERVER, check_packages
from workbench.serving.admission.flags import opening_words


def start_page(parsed: argparse.Namespace) -> int:
    """Starts the page as a separate program: nothing in the library depends on it."""
    import runpy

    check_packages("the page needs", (*PAGE, "panels"), PAGE_INSTALL)
    flags = {"--host": parsed.host, "--port": parsed.port}
    words = [str(word) for flag, value in flags.items() if value is not None for word in (flag, value)]
    sys.argv = ["workbench app", *words, *opening_words(parsed)]
    runpy.run_module("panels", run_name="__main__")
    return 0


def start_server(parsed: argparse.Namespace) -> int:
    """Starts the routes alone."""
    check_packages("a server needs", SERVER, "pip install 'speech-workbench[serve]'")
    from workbench.serving.admission.address import address
    from workbench.serving.server import SERVER_PORT, serve

    host, port = address(parsed.host, parsed.port, SERVER_PORT)
    serve(host, port, lambda sentence: print(sentence, file=sys.stderr), parsed)
    return 0


def change_keys(parsed: argparse.Namespace) -> int:
    """Adds, lists or removes API keys. A new key is printed once."""
    from workbench.serving.admission.keys import Keys, keys_path

    keys = Keys(keys_path())
    if parsed.action == "add":
        print(keys.add(parsed.name))
    elif parsed.action == "remove":
        keys.remove(parsed.name)
    else:
        for name, entry in keys.entries().items():
            print(f"{name}\t{time.strftime('%Y-%m-%d', time.gmtime(int(entry.get('made', 0))))}")
    return 0
