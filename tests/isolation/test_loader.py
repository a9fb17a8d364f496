"""Session settings and the choices each runtime offers for them."""

from __future__ import annotations

import pytest

from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import DTYPES, SETTINGS, check_setting, settings_of


def test_only_runtimes_with_dtypes_have_the_dtype_setting() -> None:
    assert SETTINGS["dtype"].choices == DTYPES
    with_dtypes = {name for name, runtime in RUNTIMES.items() if runtime.dtypes}
    assert with_dtypes == {name for name, runtime in RUNTIMES.items() if "dtype" in runtime.settings}
    for runtime in with_dtypes:
        assert SETTINGS["dtype"].default in RUNTIMES[runtime].dtypes


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runtime_settings_equal_the_declared_settings_with_supported_dtypes_only(runtime: str) -> None:
    settings = settings_of(runtime)
    assert tuple(settings) == RUNTIMES[runtime].settings
    for name, spec in settings.items():
        if name == "dtype":
            assert set(spec.choices) == {each for each in DTYPES if RUNTIMES[runtime].accepts("dtype", each)}
        else:
            assert spec == SETTINGS[name]


def test_setting_choice_is_checked_against_the_given_runtime() -> None:
    assert check_setting("dtype", "float64", "it is wrong", "pytorch") == "float64"
    assert check_setting("dtype", "float64", "it is wrong") == "float64"
    with pytest.raises(BadInput, match=r"^it is wrong; expected one of auto, float32, bfloat16, float16$"):
        check_setting("dtype", "float64", "it is wrong", "vllm")
