"""The table of token alternatives of a generation."""

from __future__ import annotations

import math

from workbench.cli.alternatives import alternatives_table
from workbench.session.values import Alternative, Generation
from workbench.text.scripts import display_width


def generation(*steps: tuple[Alternative, ...], tokens: tuple[int, ...] = ()) -> Generation:
    return Generation("m", "r", "", tokens, 1, "stop", 0.0, 0.0, 0.0, alternatives=steps)


def alternative(number: int, text: str, probability: float) -> Alternative:
    return Alternative(number, text, math.log(probability))


def test_alternatives_table_has_a_line_per_step_with_the_chosen_token_marked() -> None:
    steps = (
        (alternative(7, " three", 0.7), alternative(3, "\n", 0.25)),
        (alternative(4, "语", 0.5), alternative(5, "a" * 40, 1e-9)),
    )
    lines = list(alternatives_table(generation(*steps, tokens=(3, 4))))
    assert lines[0].split() == ["1", '"', 'three"', "70.0", "%", '*"\\n"', "25.0", "%"]
    assert lines[1].startswith('2  *"语" 50.0 %') and lines[1].endswith("<0.1 %")
    columns = [display_width(line[: line.index(mark)]) for line, mark in zip(lines, ("*", ' "aaa'))]
    assert columns[0] == columns[1], "the second alternatives are in one column"
    assert max(map(display_width, lines)) < 60


def test_alternatives_table_accepts_empty_steps_and_unknown_tokens() -> None:
    lines = list(alternatives_table(generation((alternative(-1, "a", 1.0),), (), (alternative(-1, "b", 0.5),))))
    assert [line.split()[0] for line in lines] == ["1", "2", "3"] and not any("*" in line for line in lines)
    assert list(alternatives_table(generation())) == []
