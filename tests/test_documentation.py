"""Checks of the README, the pages of docs/ and the model cards: commands, settings, make targets and links; and of the
arguments that docstrings describe.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from tests.test_project import ROOT, pins, project, python_files
from workbench.cli.arguments.parser import parser
from workbench.families import FAMILIES
from workbench.registry.cards import read_cards


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def pages() -> dict[Path, str]:
    """The README and the pages of docs/, by path."""
    return {
        path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    }


def shell_lines() -> list[list[str]]:
    """The commands in the code blocks of all pages, split into words, comments dropped."""
    blocks = re.findall(r"```(?:sh|bash|shell)\n(.*?)```", "\n".join(pages().values()), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_readme_front_matter_matches_the_project_and_the_lock_file() -> None:
    matter = yaml.safe_load(readme().split("---\n")[1])
    assert matter["sdk"] == "gradio"
    assert Version(matter["sdk_version"]) == pins("requirements.lock")["gradio"]
    assert (ROOT / matter["app_file"]).is_file()
    assert matter["license"] == project()["license"].lower()
    assert project()["requires-python"] == f">={matter['python_version']}"
    assert len(matter["short_description"]) <= 60, "longer ones are refused"


def test_pages_use_every_command_and_its_help_lists_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    offered = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
    used = [words for words in shell_lines() if words[0].endswith("workbench")]
    assert {words[1] for words in used} == set(offered)
    for command, its_parser in offered.items():
        text = its_parser.format_help()
        flags = {word.split("=")[0] for words in used if words[1] == command for word in words if word.startswith("--")}
        missing = {flag for flag in flags if flag not in text}
        assert missing == set(), f"workbench {command} --help does not know {missing}"


def card_commands() -> list[list[str]]:
    """The commands in the indented blocks of the README files of assets/, split into words."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "assets").glob("*/README.md"))]
    lines = re.findall(r"^(?: {4})?(workbench .*)$", "\n".join(texts), flags=re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_command_line_parser_accepts_every_command_in_pages_and_model_cards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cards = [words for words in card_commands() if words[1] == "train-demo"]
    assert len(cards) >= len(FAMILIES) - 1, "each demo's card says how it was made"
    pages_too = [words for words in shell_lines() if words[0].endswith("workbench")]
    refused, whole = [], parser()
    for words in [*card_commands(), *pages_too]:
        until = next((place for place, word in enumerate(words) if word in {"|", ">", "&&", "<"}), len(words))
        try:
            whole.parse_args(words[1:until])
        except SystemExit:
            refused.append((words, capsys.readouterr().err))
    assert refused == []


def test_model_cards_in_the_pages_are_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", "\n".join(pages().values()), flags=re.DOTALL)
    blocks += [
        f"[[model]]\nid = 'x'\nfamily = 'funasr_nano'\nsource = {{ demo = 'x' }}\n{line}" for line in readme_settings()
    ]
    assert len(blocks) >= 3
    for block in blocks:
        file = tmp_path / "models.toml"
        file.write_text(block, encoding="utf-8")
        [card] = read_cards(file)
        assert card.family in FAMILIES


def readme_settings() -> list[str]:
    """The lines of cards' settings that stand in the running text."""
    return re.findall(r"`(settings = .*?)`", "\n".join(pages().values()))


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    used = {word for words in shell_lines() if words[0] == "make" for word in words[1:] if re.fullmatch("[a-z]+", word)}
    assert {"app", "test"} <= used <= targets


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.name)
def test_every_relative_link_of_a_page_exists(page: Path) -> None:
    text = re.sub(r"```.*?```", "", pages()[page], flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_readme_is_short_and_names_every_page() -> None:
    text = readme()
    assert len(text.splitlines()) <= 150
    assert [path.name for path in pages() if path.parent == ROOT / "docs" and f"docs/{path.name}" not in text] == []


def described_arguments(docstring: str) -> list[str]:
    """The names before the colons of the section `Args` of a docstring."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)+)", f"{docstring}\n", flags=re.MULTILINE)
    names = (
        re.findall(r"^    (\*{0,2}\w+(?:(?:, | and )\*{0,2}\w+)*):", section[1], flags=re.MULTILINE) if section else []
    )
    return [name.lstrip("*") for group in names for name in re.split(r", | and ", group)]


def parameter_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """The parameters of a function, or those of a class's `__init__` and its fields."""
    if isinstance(node, ast.ClassDef):
        fields = {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        functions = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        return fields.union(*map(parameter_names, functions))
    return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}


@pytest.mark.parametrize("folder", ["workbench", "panels", "tests", "benchmarks"])
def test_docstrings_describe_arguments_that_exist(folder: str) -> None:
    described = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {name}"
        for path in python_files()
        if path.is_relative_to(ROOT / folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, described)
        for name in described_arguments(ast.get_docstring(node) or "")
        if name not in parameter_names(node)
    ]
    assert not wrong, f"docstrings describe arguments that do not exist: {', '.join(wrong)}"


def test_documents_and_reports_ask_for_the_same_browser() -> None:
    places = ("docs/page.md", "workbench/evaluation/report/sections.py", "assets/evaluation/report.js")
    texts = {place: (ROOT / place).read_text(encoding="utf-8") for place in places}
    asked = {place: re.findall(r"browser of (.{0,9} 20\d\d|20\d\d) or later", text) for place, text in texts.items()}
    assert all(asked.values()) and len({date for dates in asked.values() for date in dates}) == 1, asked
    features = re.findall(r"^\| `([\w:-]+)(?:\(\))?` \| \d", texts["docs/page.md"], flags=re.MULTILINE)
    sources = "".join(
        path.read_text("utf-8") for suffix in ("css", "js") for path in (ROOT / "assets").rglob(f"*.{suffix}")
    )
    assert len(features) == 5 and not [name for name in features if name not in sources]
