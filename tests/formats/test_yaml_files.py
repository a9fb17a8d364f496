"""YAML files of checkpoints: what is read, and the sentence for every kind of damage."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.formats.yaml_files import LARGEST, MAX_VALUES, read_yaml


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def bomb(levels: int) -> str:
    """Lists of nine aliases each: 9 to the power of `levels` values in a few lines."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_mappings_with_aliases_and_merged_keys_are_read(file: Path) -> None:
    file.write_text("\ufeffa: &a {b: [1, 2.5, yes, ~]}\nc: *a\nd: {<<: *a, e: 你}\n", encoding="utf-8")
    inner = {"b": [1, 2.5, True, None]}
    assert read_yaml(file) == {"a": inner, "c": inner, "d": {**inner, "e": "你"}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x: !!int ''", "is not valid YAML: IndexError"),
        ("x: !!float ''", "is not valid YAML: IndexError"),
        ("x: !!bool z", "is not valid YAML: KeyError"),
        ("x: !!timestamp z", "is not valid YAML: AttributeError"),
        ("x: !!int z", "is not valid YAML: ValueError"),
        ("x: " + "9" * 5000, "is not valid YAML: ValueError"),
        ("x: !!python/name:os.system", "is not valid YAML: could not determine a constructor"),
        ("x: *y", "is not valid YAML: found undefined alias"),
        ("a: 1\n---\nb: 2", "is not valid YAML: but found another document"),
        ("[" * 5000, "is not valid YAML: its lists are nested too deeply"),
        ("5", "holds no mapping"),
        ("", "holds no mapping"),
        ("x: 1\0", "cannot be read: it is not UTF-8 text at byte 4"),
        ("x" * (LARGEST + 1), "cannot be read: it has more than 1048576 bytes"),
        (f"{bomb(12)}\nmodel: *a11", f"stands for more than {MAX_VALUES:,} values"),
        ("model: &m [*m]", f"stands for more than {MAX_VALUES:,} values"),
        ("model: &m {a: *m}", f"stands for more than {MAX_VALUES:,} values"),
    ],
)
def test_damaged_yaml_is_refused_with_the_names_of_file_and_folder(content: str, message: str, file: Path) -> None:
    file.write_text(content)
    start = time.process_time()
    with pytest.raises(BadInput) as error:
        read_yaml(file)
    assert str(error.value).startswith(f"{file.parent.name}/config.yaml {message}")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    assert time.process_time() - start < 5


def test_values_behind_a_few_aliases_are_read(file: Path) -> None:
    file.write_text(bomb(5))
    assert len(read_yaml(file)["a4"]) == 9


TAGS = st.sampled_from(
    ("!!int", "!!float", "!!bool", "!!null", "!!timestamp", "!!binary", "!!set", "!!omap", "!!pairs")
)


@given(tag=TAGS, value=st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20))
def test_any_value_of_any_tag_is_read_or_refused(
    tag: str, value: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(f"x: {tag} {value}", encoding="utf-8")
    with contextlib.suppress(BadInput):
        read_yaml(file)
