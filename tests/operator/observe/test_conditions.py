"""One look-up for all conditions: whatever a status lacks, there is no condition and nothing is raised."""

from typing import Any

import pytest

from shardwright_operator.observe.conditions import condition_of, holds

READY = {"type": "Ready", "status": "True", "reason": "Fine"}


@pytest.mark.parametrize(
    ("status", "found", "true"),
    [
        pytest.param({}, {}, False, id="no conditions"),
        pytest.param({"conditions": None}, {}, False, id="null"),
        pytest.param({"conditions": []}, {}, False, id="none"),
        pytest.param({"conditions": [{"type": "Stalled", "status": "True"}]}, {}, False, id="another"),
        pytest.param(
            {"conditions": [{"status": "True"}, READY]}, READY, True, id="beside one without a type"
        ),
        pytest.param(
            {"conditions": [{**READY, "status": "Unknown"}]},
            {**READY, "status": "Unknown"},
            False,
            id="unknown",
        ),
    ],
)
def test_condition_by_its_type(status: dict[str, Any], found: dict[str, str], *, true: bool) -> None:
    assert (condition_of(status, "Ready"), holds(status, "Ready")) == (found, true)
