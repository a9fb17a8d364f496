"""The AMX check of llama.cpp: an installed library is tested once, in a separate process that may crash."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tiny_gguf import tiny_gguf
from workbench.core.settings import Settings
from workbench.runtimes.gguf.causal_lm import open_session
from workbench.runtimes.gguf.graphs import amx, amx_product
from workbench.runtimes.gguf.graphs.ggml import Library, library_files, load_library
from workbench.runtimes.gguf.graphs.repacking import LAYOUTS, VECTORS
from workbench.runtimes.gguf.llama_cpp import llama
from workbench.system import processor_kind
from workbench.system.user_cache import user_cache

CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


class CheckedLibrary:
    """A library file that a fake process checks, and the number of these checks."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "libggml-cpu.so"
        self.path.write_bytes(b"a library")
        self._runs = folder / "runs"
        self._runs.write_text("")

    @property
    def runs(self) -> int:
        return len(self._runs.read_text())

    def child(self, program: str) -> tuple[str, ...]:
        return ("-c", f"open({str(self._runs)!r}, 'a').write('x')\n{program}")


UseProgram = Callable[[str], CheckedLibrary]


@pytest.fixture
def library_with_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseProgram:
    """A function that lets the check process run a program and returns the library, on a processor with AMX."""
    library = CheckedLibrary(tmp_path)
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx512f amx_tile amx_int8 flush_l1d\n")
    monkeypatch.setattr(processor_kind, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(amx, "library_files", lambda: (tmp_path / "libggml-base.so", library.path))

    def use_program(program: str) -> CheckedLibrary:
        monkeypatch.setattr(amx, "CHILD", library.child(program))
        return library

    return use_program


@pytest.mark.parametrize("flags", ["flags\t: fpu avx512f amx_tile amx_int80\n", "Features\t: fp asimd\n", "", None])
def test_no_check_process_starts_on_a_processor_without_amx(
    library_with_check: UseProgram, flags: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_with_check(CRASH)
    (tmp_path / "cpuinfo").unlink()
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(flags)
    assert (amx.amx_fault(), library.runs) == ("", 0)
    assert not user_cache().exists(), "the result is not stored either"


@pytest.mark.parametrize("answer", ["works", "none"])
def test_usable_library_is_checked_once(library_with_check: UseProgram, answer: str) -> None:
    library = library_with_check(f"print({answer!r})")
    assert [amx.amx_fault() for _ in range(3)] == [""] * 3
    assert library.runs == 1


@pytest.mark.parametrize(
    "program, failure",
    [
        (CRASH, "ends with signal 11"),
        (CRASH.replace("SEGV", "ILL"), "ends with signal 4"),
        ("print('wrong')", "computes wrong numbers"),
    ],
)
def test_failing_library_is_checked_once_and_reported(
    library_with_check: UseProgram, program: str, failure: str
) -> None:
    library = library_with_check(program)
    fault = amx.amx_fault()
    assert fault == (
        f"llama.cpp runs without the processor's matrix units (AMX), so slower: its installed library {failure} there; "
        'compile it again as docs/troubleshooting.md says under "AMX"'
    )
    assert (amx.amx_fault(), library.runs) == (fault, 1)


@pytest.mark.parametrize(
    "program, failure",
    [
        (CRASH.replace("SEGV", "KILL"), "ends with signal 9"),
        ("raise ImportError", "could not be tried out"),
        ("print('works'); raise SystemExit(1)", "could not be tried out"),
        ("print('perhaps')", "could not be tried out"),
    ],
)
def test_inconclusive_check_result_is_not_cached(library_with_check: UseProgram, program: str, failure: str) -> None:
    library = library_with_check(program)
    assert f"its installed library {failure} there" in amx.amx_fault()
    assert amx.amx_fault() and library.runs == 2
    library_with_check("print('works')")
    assert amx.amx_fault() == ""


@pytest.mark.parametrize(
    ("switch", "program", "expected"),
    [
        ("", "print('works')", LAYOUTS),
        ("on", "print('works')", LAYOUTS),
        (" Off ", "print('works')", (VECTORS,)),
        ("", CRASH, (VECTORS,)),
    ],
)
def test_layouts_depend_on_the_amx_setting_and_the_check(
    library_with_check: UseProgram,
    monkeypatch: pytest.MonkeyPatch,
    switch: str,
    program: str,
    expected: tuple[bytes, ...],
) -> None:
    library_with_check(program)
    monkeypatch.setenv("WORKBENCH_AMX", switch)
    assert amx.layouts() == expected


def test_a_process_that_hangs_is_ended(library_with_check: UseProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    library_with_check("import signal; signal.pause()")
    monkeypatch.setattr(amx, "TIMEOUT_SECONDS", 0.2)
    assert "gave no answer for 0 s" in amx.amx_fault()


def test_missing_python_executable_is_reported(library_with_check: UseProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    library_with_check("print('works')")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "could not be tried out (No such file or directory)" in amx.amx_fault()


def test_changed_library_is_checked_again(library_with_check: UseProgram) -> None:
    library = library_with_check(CRASH)
    assert amx.amx_fault()
    library_with_check("print('works')")
    assert amx.amx_fault() and library.runs == 1
    library.path.write_bytes(b"a mended library")
    assert (amx.amx_fault(), library.runs) == ("", 2)
    state = library.path.stat()
    os.utime(library.path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert (amx.amx_fault(), library.runs) == ("", 3)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b"{}", b'{"fault": 1}', b'{"fault": "a\\nb"}', b"[" * 100_000]
)
def test_damaged_cache_record_is_replaced(library_with_check: UseProgram, content: bytes) -> None:
    library = library_with_check("print('works')")
    assert amx.amx_fault() == ""
    [record] = (user_cache() / "amx").iterdir()
    record.write_bytes(content)
    assert [amx.amx_fault(), amx.amx_fault()] == ["", ""]
    assert library.runs == 2
    assert [json.loads(each.read_text()) for each in record.parent.iterdir()] == [{"fault": ""}]


def test_check_runs_each_time_when_the_cache_is_not_writable(library_with_check: UseProgram, tmp_path: Path) -> None:
    library = library_with_check(CRASH)
    user_cache().parent.mkdir(parents=True)
    user_cache().write_text("a file where the folder should be")
    assert [bool(amx.amx_fault()) for _ in range(2)] == [True, True]
    assert library.runs == 2


def test_installed_library_passes_the_amx_check() -> None:
    """On a processor with AMX the check computes a product; on others it reports that there is nothing to check."""
    assert amx.amx_fault() == ""
    assert amx._try_out(library_files()) == ("", True)


class Plain:
    """Replaces a layout of ggml: holds the matrix unchanged, or with one bit changed."""

    is_possible = True

    def __init__(self, library: Library, wrong: bool):
        self.library, self.wrong = library, wrong

    def buffer(self, pointer: int, address: int, size: int) -> int:
        self.memory = ctypes.create_string_buffer(size + 64)
        start = -(-ctypes.addressof(self.memory) // 64) * 64
        ctypes.memmove(start, address, size)
        if self.wrong:
            ctypes.c_uint8.from_address(start + 1000).value ^= 8
        buffer: int = self.library.backend_cpu_buffer_from_ptr(start, size)
        self.library.backend_tensor_alloc(buffer, pointer, start)
        return buffer


@pytest.mark.parametrize("wrong, answer", [(False, "works"), (True, "wrong")])
def test_check_detects_a_wrong_matrix_product(monkeypatch: pytest.MonkeyPatch, wrong: bool, answer: str) -> None:
    monkeypatch.setattr(amx_product, "Repacking", lambda library, kind: Plain(library, wrong))
    assert amx_product.try_out(load_library()) == answer


@pytest.mark.parametrize(
    ("fault", "switch", "hidden", "used"),
    [("", "", 64, True), ("the units fail", "", 64, False), ("", "off", 64, False), ("", "", 32, False)],
)
def test_session_does_not_use_failing_amx_units_and_adds_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, switch: str, hidden: int, used: bool
) -> None:
    tiny_gguf(tmp_path / "it.gguf", hidden_size=hidden, intermediate_size=128, head_dim=32)
    monkeypatch.setenv("WORKBENCH_AMX", switch)
    monkeypatch.setattr(llama, "amx_fault", lambda: fault)
    functions, flags = llama.load_llama(), []
    load = functions.llama_model_load_from_file

    def load_and_record(path: bytes, parameters: ctypes.Structure) -> int:
        flags.append(parameters.use_extra_bufts)
        model: int = load(path, parameters)
        return model

    monkeypatch.setattr(functions, "llama_model_load_from_file", load_and_record)
    session = open_session(tmp_path / "it.gguf", "it", Settings(threads=1))
    generation = session.generate("seven", max_new_tokens=2)
    session.close()
    assert flags == [used]
    assert generation.notes == ((fault,) if fault else ())
