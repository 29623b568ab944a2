"""Scales that need an accelerator: three steps of each."""

import pytest

from experiments import REGISTRY
from experiments.experiment import changed
from experiments.trials import TRIALS, scales


@pytest.mark.parametrize(("name", "scale"), TRIALS)
def test_a_trial_changes_a_scale_that_exists(name: str, scale: str) -> None:
    preset = REGISTRY[name].presets[scale]
    assert changed(preset, TRIALS[name, scale]) != preset
    assert scale in scales(name)


@pytest.mark.release
@pytest.mark.parametrize(("name", "scale"), TRIALS)
def test_three_steps_of_a_scale_leave_numbers(name: str, scale: str) -> None:
    try:
        record = REGISTRY[name].run(scale, 1, TRIALS[name, scale], progress=False)
    except FileNotFoundError:
        pytest.skip("the data are not here")
    values = [value for number in record.findings.numbers for value in number.values]
    assert values
    assert all(abs(value) < float("inf") for value in values)
