"""The binding to ggml: supported versions, typed functions, and one shared copy with the library of llama.cpp."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import pytest

from workbench.core.errors import Unavailable
from workbench.runtimes.gguf.graphs import ggml


def test_the_installed_version_is_in_the_tested_range() -> None:
    version = ggml.load_library().version().decode()
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", version)
    ggml.check_version(version)


@pytest.mark.parametrize("version", ["0.24.9", "0.26.0", "1.0.0", "0.9.4", "", "unknown", "0.25"])
def test_untested_ggml_versions_are_refused_with_their_number(version: str) -> None:
    with pytest.raises(Unavailable, match=r"tested is 0\.25\.0 and later, before 0\.26\.0") as error:
        ggml.check_version(version)
    assert version in str(error.value)


@pytest.mark.parametrize("version", ["0.25.0", "0.25.3", "0.25.99", "0.25.3-dirty"])
def test_ggml_versions_in_the_tested_range_are_accepted(version: str) -> None:
    ggml.check_version(version)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ggml_binding_and_llama_cpp_share_one_loaded_library() -> None:
    import llama_cpp

    ggml.load_library()
    assert llama_cpp.llama_supports_mmap() in (True, False)
    mapped = {
        Path(line.split()[-1]).name for line in Path("/proc/self/maps").read_text().splitlines() if "ggml" in line
    }
    assert len([name for name in mapped if name.startswith("libggml-base")]) == 1, mapped
    assert len([name for name in mapped if name.startswith("libggml-cpu")]) == 1, mapped


def test_missing_library_raises_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ggml, "_linked", lambda stem: Path(f"/nowhere/lib{stem}.so"))
    ggml.load_library.cache_clear()
    with pytest.raises(Unavailable, match="does not load"):
        ggml.load_library()
    monkeypatch.undo()
    ggml.load_library.cache_clear()
    assert ggml.load_library()


def test_library_without_a_bound_function_raises_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ggml.BASE, "ggml_no_such_thing", (None, ()))
    ggml.load_library.cache_clear()
    with pytest.raises(Unavailable, match="ggml_no_such_thing"):
        ggml.load_library()
    monkeypatch.undo()
    ggml.load_library.cache_clear()


def test_every_bound_function_has_its_declared_types() -> None:
    library = ggml.load_library()
    for name, (result, arguments) in {**ggml.BASE, **ggml.CPU}.items():
        function = getattr(library, name.removeprefix("ggml_"))
        assert function.restype is result and tuple(function.argtypes) == arguments
    with pytest.raises(AttributeError, match="not bound"):
        library.soft_max_back  # noqa: B018
    assert ctypes.sizeof(ggml.InitParams) == 24
