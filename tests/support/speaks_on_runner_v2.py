"""A program for a test: opens a directory in an engine with vLLM's model runner V2, and answers.

Arguments: the directory, and a file of JSON with a list of [messages, options]. It writes a line of JSON for each
answer alone, for each of all at once while the engine takes them out of the batch, and for what is left in the engine.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench.core.settings import Settings
from workbench.runtimes.vllm.engine.forking import inspecting_here
from workbench.runtimes.vllm.speechlm import open_session


def tell(value: Any) -> None:
    """Writes a line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")


def main(directory: Path, cases: list[Any]) -> None:
    """Writes the answers."""
    with inspecting_here():
        session = open_session(directory, "tiny", Settings(threads=1, kv_gigabytes=0.05))
    engine: Any = session.network.engine  # type: ignore[attr-defined]

    def answer(case: Any) -> dict[str, Any]:
        found = session.converse(case[0], **case[1])
        return {"ids": found.token_ids, "streams": None if found.streams is None else found.streams.tolist()}

    try:
        for case in cases:
            tell(answer(case))
        with ThreadPoolExecutor(len(cases)) as pool:
            working = [pool.submit(answer, case) for case in cases]
            while not all(each.done() for each in working):
                time.sleep(2)
                engine._submit(engine._llm.reset_prefix_cache(reset_running_requests=True)).result()
            for each in working:
                tell(each.result())
        tell({"unfinished": engine.unfinished, "kept": engine.call("workbench_answers")})
    finally:
        session.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
