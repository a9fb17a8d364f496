"""The maker and the features of the processor, from Linux's list, from Windows, and where neither says anything."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from workbench.system import processor_kind

XEON = (
    "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A flags: b\nflags\t\t: fpu avx512f amx_int8\n"
    "vmx flags\t: vnmi\n\nprocessor\t: 1\nvendor_id\t: Another\nflags\t\t: fpu\n"
)


@pytest.mark.parametrize(
    ("text", "maker", "features"),
    [
        (XEON, "GenuineIntel", {"fpu", "avx512f", "amx_int8"}),
        ("processor\t: 0\nFeatures\t: fp asimd\n", "", set()),
        ("vendor_id\nflags", "", set()),
        ("", "", set()),
    ],
)
def test_the_list_of_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, maker: str, features: set[str]
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(processor_kind, "CPU_INFO", tmp_path / "cpuinfo")
    assert (processor_kind.vendor(), processor_kind.flags()) == (maker, features)


@pytest.mark.parametrize(
    ("system", "name", "maker"),
    [
        ("Windows", "Intel64 Family 6 Model 143 Stepping 8, GenuineIntel", "GenuineIntel"),
        ("Windows", "", ""),
        ("Darwin", "arm", ""),
    ],
)
def test_other_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, name: str, maker: str) -> None:
    monkeypatch.setattr(processor_kind, "CPU_INFO", tmp_path / "missing")
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "processor", lambda: name)
    assert (processor_kind.vendor(), processor_kind.flags()) == (maker, frozenset())
