"""Plants faults in ports that were not written for this project, and counts how many are found at the exact stage.

    python -m benchmarks.planted_faults FOLDER                    plants, judges and prints the table
    python -m benchmarks.planted_faults FOLDER --only funasr      one port; the others keep their verdicts
    python -m benchmarks.planted_faults FOLDER --write            puts the table into benchmarks/PARITY.md too

The planters (`benchmarks.faults_in_*`) run in separate processes. This file judges their dumps with `run_parity`, as
`workbench parity` does, and writes every verdict before it opens the sealed file with the planted faults.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.parity_page import read, render
from benchmarks.planting import SEALED, SEEN, VERDICTS, Planted
from workbench.parity_lab import Outcome, run_parity
from workbench.registry.registry import Registry

PAGE = Path(__file__).with_name("PARITY.md")
PORTS = {
    "transformers": "`transformers`' Qwen3",
    "onnx": "ONNX Runtime, exported by funasr",
    "funasr": "funasr's SenseVoice",
}


@dataclass(frozen=True)
class Judged:
    """A dump with its verdict."""

    planted: Planted
    file: str
    status: str
    stage: str | None
    hint: str | None

    @property
    def above(self) -> bool:
        """Whether the fault changes its stage more than correct ports differ there."""
        return self.planted.effect > self.planted.spread

    @property
    def exact(self) -> bool:
        """Whether the verdict names the fault's stage."""
        return self.stage == self.planted.stage


def plant(port: str, folder: Path) -> None:
    """Runs a planter in a separate process, which writes its dumps."""
    subprocess.run([sys.executable, "-m", f"benchmarks.faults_in_{port}", str(folder / port)], check=True)


def judge_all(folder: Path) -> None:
    """Writes the verdict on each dump of a folder."""
    groups = json.loads((folder / SEEN).read_text(encoding="utf-8"))
    verdicts: dict[str, Any] = {}
    with Registry(isolate=False) as registry:
        for name, group in groups.items():
            files = [str(folder / each) for each in group["files"]]
            source, stages = group["source"], group["stages"]
            with run_parity(
                registry, group["model"], source, candidates=files, stages=stages, settings={"threads": 1}
            ) as run:
                verdicts |= {Path(path).name: _verdict(each) for path, each in zip(files, run.outcomes)}
            print(f"{folder.name}: {name}, {len(files)} ports", file=sys.stderr, flush=True)
    (folder / VERDICTS).write_text(json.dumps(verdicts, indent=1, ensure_ascii=False), encoding="utf-8")


def _verdict(outcome: Outcome) -> dict[str, Any]:
    hint = outcome.verdict.explanation if outcome.verdict else None
    return {
        "status": outcome.status,
        "stage": outcome.faulty_stage,
        "hint": hint.sentence if hint else None,
        "sentence": outcome.sentence,
    }


def judged(folder: Path) -> list[Judged]:
    """Opens the sealed file, and returns each dump with its verdict."""
    sealed = json.loads((folder / SEALED).read_text(encoding="utf-8"))
    verdicts = json.loads((folder / VERDICTS).read_text(encoding="utf-8"))
    return [
        Judged(Planted(**planted), name, verdicts[name]["status"], verdicts[name]["stage"], verdicts[name]["hint"])
        for name, planted in sealed.items()
    ]


def table(results: dict[str, list[Judged]]) -> Iterator[str]:
    """Yields the rows of the table, one for each port and type, and the missed faults below."""
    head = ("port", "type", "faults", "above the spread", "named at the exact stage", "with a hint", "correct ports")
    yield f"| {' | '.join((*head, 'false alarms'))} |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    missed = []
    for port, all_of in results.items():
        for dtype in dict.fromkeys(each.planted.dtype for each in sorted(all_of, key=_order)):
            of_dtype = [each for each in all_of if each.planted.dtype == dtype]
            faulty = [each for each in of_dtype if each.planted.stage]
            correct = [each for each in of_dtype if not each.planted.stage]
            above = [each for each in faulty if each.above]
            exact = [each for each in above if each.exact]
            share = f"{len(exact)} of {len(above)} ({100 * len(exact) / max(len(above), 1):.0f} %)"
            hints = sum(each.hint is not None for each in exact)
            alarms = [each for each in correct if each.status != "within"]
            cells = (len(faulty), len(above), share, hints, len(correct), len(alarms))
            yield f"| {PORTS[port]} | {dtype} | {' | '.join(map(str, cells))} |"
            missed += [(port, each) for each in above if not each.exact] + [(port, each) for each in alarms]
    yield ""
    yield "Missed, or named elsewhere:" if missed else "None was missed."
    yield ""
    for port, each in missed:
        planted = each.planted
        if not planted.stage:
            yield f"- {PORTS[port]}, {planted.dtype}: false alarm at {each.stage} for {planted.how}"
            continue
        outcome = f"{each.stage} was named" if each.stage else "not found"
        size = f"its error is {planted.effect:.1e}, correct ports differ by {planted.spread:.1e}"
        yield f"- {PORTS[port]}, {planted.dtype}: {planted.how} at {planted.stage}: {outcome}; {size}"


def _order(each: Judged) -> int:
    return ["float32", "float16", "bfloat16"].index(each.planted.dtype)


def write(lines: Sequence[str]) -> None:
    """Replaces the part of the page that holds the table."""
    page = read(PAGE.read_text(encoding="utf-8"))
    planted = "\n".join((textwrap.fill(_ABOUT, 120, break_on_hyphens=False), "", *lines))
    PAGE.write_text(render(replace(page, planted=planted)), encoding="utf-8")


_ABOUT = """`python -m benchmarks.planted_faults FOLDER --write` writes this part. A planter edits weights, constants or
code of one place of a port and dumps its stages, also those inside layers; the detector sees dumps only. The error of a
fault is the relative L2 of its stage between the port with and without it. It is *above the spread* if it is larger
than the largest difference at that stage between correct ports of the same type on the same input: other kernels,
orders of sums, threads, padding. A correct port that is not within is a *false alarm*. *With a hint* counts the faults
named exactly whose numbers something known explains (`docs/parity.md`)."""


def main() -> None:
    """Plants, judges and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=PORTS)
    parser.add_argument("--planted", action="store_true", help="judge what is planted already")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for port in [options.only] if options.only else PORTS:
        if not options.planted:
            plant(port, options.folder)
        judge_all(options.folder / port)
    results = {port: judged(options.folder / port) for port in PORTS if (options.folder / port / VERDICTS).is_file()}
    lines = list(table(results))
    print("\n".join(lines))
    if options.write:
        write(lines)


if __name__ == "__main__":
    main()
