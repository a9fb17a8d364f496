"""llama.cpp as a library: its version, its log output and its error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_gguf import tiny_gguf
from workbench.core.errors import BadInput, Unavailable
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.llama_cpp.llama import check_version, load_llama, open_plain, take_reason


@pytest.mark.parametrize("version", ["0.3.36", "0.3.99", "0.3.36+cpu"])
def test_tested_llama_cpp_versions_are_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["0.3.35", "0.4.0", "1.0", "unknown"])
def test_untested_llama_cpp_versions_are_refused(version: str) -> None:
    with pytest.raises(Unavailable, match=rf"^llama-cpp-python {version} is installed; tested is 0\.3\.36 and later, "):
        check_version(version)


def test_file_that_llama_cpp_refuses_raises_its_reason_without_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    path = tmp_path / "other.gguf"
    path.write_bytes((tmp_path / "it.gguf").read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight"))
    with pytest.raises(BadInput, match=r"^llama\.cpp does not load other\.gguf: tensor 'blk\.1\.attn_q\.weight' not f"):
        open_plain(read_gguf(path))
    open_plain(read_gguf(tmp_path / "it.gguf")).close()
    assert capfd.readouterr() == ("", ""), "llama.cpp prints nothing"
    assert take_reason() == "it does not say why"


def test_model_can_be_opened_without_its_vocabulary(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    functions, file = load_llama(), read_gguf(tmp_path / "it.gguf")
    for rows, kind in ((None, 2), (512, 0)):
        model = open_plain(file, rows)
        assert functions.llama_vocab_n_tokens(model.vocabulary) == 512
        assert functions.llama_vocab_type(model.vocabulary) == kind
        model.close()
    with pytest.raises(BadInput, match=r"tensor 'token_embd\.weight' has wrong shape"):
        open_plain(file, 511)
