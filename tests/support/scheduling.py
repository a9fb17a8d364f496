"""Which tests run in one process, where several processes run tests: those of a file, and all that import vLLM."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

VLLM = "vllm"
IMPORTS_VLLM = ("tests/parity_lab/test_models.py",)  # beside the files whose path says it


class ByFileAndImport(LoadFileScheduling):
    """Gives all files that import vLLM to one process: the import takes 20 s of a core, and 700 MB."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return VLLM if VLLM in file or file in IMPORTS_VLLM else file
