"""Start-up times: until the page answers (at most 1.6 times `import gradio` alone), and until a demo model is open (5
s).

    python -m benchmarks.startup [--rounds N]

Both programs alternate in separate processes; the median ratio of consecutive runs counts. Exit status 1 above the
promised values.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from benchmarks.served import free_port
from workbench.core.errors import WorkbenchError
from workbench.registry.registry import Registry

ROOT = Path(__file__).resolve().parent.parent
RATIO, OPEN_SECONDS = 1.6, 5.0
DEMOS = ("demo/sensevoice", "demo/paraformer")


def import_seconds() -> float:
    """Returns the seconds of a Python process that imports gradio and ends."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import gradio"], check=True, cwd=ROOT)
    return time.perf_counter() - started


def answer_seconds() -> float:
    """Returns the seconds from the page's start to its first answer."""
    port = free_port()
    started = time.perf_counter()
    page = subprocess.Popen([sys.executable, "app.py", "--port", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                    answer.read()
                return time.perf_counter() - started
            except urllib.error.URLError:
                if page.poll() is not None:
                    raise SystemExit(f"the page ended with status {page.returncode}") from None
                time.sleep(0.02)
    finally:
        page.terminate()
        page.wait()


def open_seconds(model: str) -> float:
    """Returns the seconds that the registry needs to open a model in a separate process."""
    with Registry() as registry:
        started = time.perf_counter()
        registry.open(model).close()
        return time.perf_counter() - started


def main() -> int:
    """Prints the medians and their ratio."""
    parser = argparse.ArgumentParser(description="How soon the page answers, and how soon a demo model is open.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import_seconds()  # the first fills the disk cache for both
    pairs = [(import_seconds(), answer_seconds()) for _ in range(rounds)]
    import_time, page_time = (statistics.median(column) for column in zip(*pairs))
    print(f"import gradio          {import_time:6.2f} s   (median of {rounds})")
    print(f"page answers           {page_time:6.2f} s")
    # Ratios of consecutive runs, as other work on the machine varies.
    ratio = statistics.median(after / before for before, after in pairs)
    print(f"ratio                  {ratio:6.2f}     (median of {rounds} pairs; promised: at most {RATIO})")
    fine = ratio <= RATIO
    for model in DEMOS:
        try:
            opened = statistics.median(open_seconds(model) for _ in range(rounds))
        except WorkbenchError as error:
            print(f"open {model:17}      –     {error}")
            fine = False
            continue
        print(f"open {model:17} {opened:6.2f} s   (promised: under {OPEN_SECONDS:g})")
        fine = fine and opened < OPEN_SECONDS
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
