"""The messages of other libraries' errors, as the workbench quotes them."""

from __future__ import annotations

import pytest

from workbench.core.errors import message_of, named_message_of


@pytest.mark.parametrize(
    ("error", "longest", "message"),
    [
        (ValueError("a\n  b\t\r\n c "), 200, "a b c"),
        (ValueError("a" + "b" * 500), 200, "a" + "b" * 199),
        (ValueError("a\n  b" + "c" * 500), 120, "a b" + "c" * 117),
        (ValueError("a" * 500), None, "a" * 500),
        (KeyError(), 200, "KeyError"),
        (OSError(" \n "), None, "OSError"),
    ],
)
def test_quoted_message_is_one_line_of_limited_length(error: Exception, longest: int | None, message: str) -> None:
    assert message_of(error, longest) == message


def test_a_named_message_begins_with_the_type() -> None:
    assert named_message_of(ValueError("a\nb" + "c" * 500)) == "ValueError: a b" + "c" * 500
    assert named_message_of(RuntimeError()) == "RuntimeError"
