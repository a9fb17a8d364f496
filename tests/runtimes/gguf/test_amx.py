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
from workbench.runtimes.gguf import amx, amx_product, llama
from workbench.runtimes.gguf.causal_lm import open_session
from workbench.runtimes.gguf.ggml import Library, library_files, load_library
from workbench.runtimes.gguf.repacking import LAYOUTS, VECTORS
from workbench.system.user_cache import user_cache

CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


class Tried:
    """A library of which a made-up process tries the units out, and how often that was done."""

    def __init__(self, folder: Path) -> None:
        self.library = folder / "libggml-cpu.so"
        self.library.write_bytes(b"a library")
        self._runs = folder / "runs"
        self._runs.write_text("")

    @property
    def runs(self) -> int:
        return len(self._runs.read_text())

    def child(self, does: str) -> tuple[str, ...]:
        return ("-c", f"open({str(self._runs)!r}, 'a').write('x')\n{does}")


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Tried]:
    """On a processor with the units: has the process that tries them out do something."""
    of = Tried(tmp_path)
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx512f amx_tile amx_int8 flush_l1d\n")
    monkeypatch.setattr(amx, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(amx, "library_files", lambda: (tmp_path / "libggml-base.so", of.library))

    def does(what: str) -> Tried:
        monkeypatch.setattr(amx, "CHILD", of.child(what))
        return of

    return does


@pytest.mark.parametrize("flags", ["flags\t: fpu avx512f amx_tile amx_int80\n", "Features\t: fp asimd\n", "", None])
def test_no_check_process_starts_on_a_processor_without_amx(
    tried: Callable[[str], Tried], flags: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = tried(CRASH)
    (tmp_path / "cpuinfo").unlink()
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(flags)
    assert (amx.amx_fault(), of.runs) == ("", 0)
    assert not user_cache().exists(), "nothing is to be kept either"


@pytest.mark.parametrize("answer", ["works", "none"])
def test_usable_library_is_checked_once(tried: Callable[[str], Tried], answer: str) -> None:
    of = tried(f"print({answer!r})")
    assert [amx.amx_fault() for _ in range(3)] == [""] * 3
    assert of.runs == 1


@pytest.mark.parametrize(
    "does, how",
    [
        (CRASH, "ends with signal 11"),
        (CRASH.replace("SEGV", "ILL"), "ends with signal 4"),
        ("print('wrong')", "computes wrong numbers"),
    ],
)
def test_failing_library_is_checked_once_and_reported(tried: Callable[[str], Tried], does: str, how: str) -> None:
    of = tried(does)
    fault = amx.amx_fault()
    assert fault == (
        f"llama.cpp runs without the processor's matrix units (AMX), so slower: its installed library {how} there; "
        'compile it again as docs/troubleshooting.md says under "AMX"'
    )
    assert (amx.amx_fault(), of.runs) == (fault, 1)


@pytest.mark.parametrize(
    "does, how",
    [
        (CRASH.replace("SEGV", "KILL"), "ends with signal 9"),
        ("raise ImportError", "could not be tried out"),
        ("print('works'); raise SystemExit(1)", "could not be tried out"),
        ("print('perhaps')", "could not be tried out"),
    ],
)
def test_inconclusive_check_result_is_not_cached(tried: Callable[[str], Tried], does: str, how: str) -> None:
    of = tried(does)
    assert f"its installed library {how} there" in amx.amx_fault()
    assert amx.amx_fault() and of.runs == 2
    tried("print('works')")
    assert amx.amx_fault() == ""


@pytest.mark.parametrize(
    ("switch", "does", "found"),
    [
        ("", "print('works')", LAYOUTS),
        ("on", "print('works')", LAYOUTS),
        (" Off ", "print('works')", (VECTORS,)),
        ("", CRASH, (VECTORS,)),
    ],
)
def test_layouts_depend_on_the_amx_setting_and_the_check(
    tried: Callable[[str], Tried], monkeypatch: pytest.MonkeyPatch, switch: str, does: str, found: tuple[bytes, ...]
) -> None:
    tried(does)
    monkeypatch.setenv("WORKBENCH_AMX", switch)
    assert amx.layouts() == found


def test_a_process_that_hangs_is_ended(tried: Callable[[str], Tried], monkeypatch: pytest.MonkeyPatch) -> None:
    tried("import signal; signal.pause()")
    monkeypatch.setattr(amx, "SECONDS", 0.2)
    assert "gave no answer for 0 s" in amx.amx_fault()


def test_missing_python_executable_is_reported(tried: Callable[[str], Tried], monkeypatch: pytest.MonkeyPatch) -> None:
    tried("print('works')")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "could not be tried out (No such file or directory)" in amx.amx_fault()


def test_changed_library_is_checked_again(tried: Callable[[str], Tried]) -> None:
    of = tried(CRASH)
    assert amx.amx_fault()
    tried("print('works')")
    assert amx.amx_fault() and of.runs == 1
    of.library.write_bytes(b"a mended library")
    assert (amx.amx_fault(), of.runs) == ("", 2)
    state = of.library.stat()
    os.utime(of.library, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert (amx.amx_fault(), of.runs) == ("", 3)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b"{}", b'{"fault": 1}', b'{"fault": "a\\nb"}', b"[" * 100_000]
)
def test_damaged_cache_record_is_replaced(tried: Callable[[str], Tried], content: bytes) -> None:
    of = tried("print('works')")
    assert amx.amx_fault() == ""
    [kept] = (user_cache() / "amx").iterdir()
    kept.write_bytes(content)
    assert [amx.amx_fault(), amx.amx_fault()] == ["", ""]
    assert of.runs == 2
    assert [json.loads(each.read_text()) for each in kept.parent.iterdir()] == [{"fault": ""}]


def test_check_runs_each_time_when_the_cache_is_not_writable(tried: Callable[[str], Tried], tmp_path: Path) -> None:
    of = tried(CRASH)
    user_cache().parent.mkdir(parents=True)
    user_cache().write_text("a file where the folder should be")
    assert [bool(amx.amx_fault()) for _ in range(2)] == [True, True]
    assert of.runs == 2


def test_installed_library_passes_the_amx_check() -> None:
    """On a processor with the units this is the whole way, on others that nothing stands in it."""
    assert amx.amx_fault() == ""
    assert amx._try_out(library_files()) == ("", True)


class Plain:
    """In place of a layout of ggml's own: the matrix as it is, or with a bit changed."""

    possible = True

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
    functions, asked = llama.load_llama(), []
    load = functions.llama_model_load_from_file

    def loading(path: bytes, parameters: ctypes.Structure) -> int:
        asked.append(parameters.use_extra_bufts)
        found: int = load(path, parameters)
        return found

    monkeypatch.setattr(functions, "llama_model_load_from_file", loading)
    session = open_session(tmp_path / "it.gguf", "it", Settings(threads=1))
    generation = session.generate("seven", max_new_tokens=2)
    session.close()
    assert asked == [used]
    assert generation.notes == ((fault,) if fault else ())
