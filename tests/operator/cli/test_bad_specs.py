"""Every spec that the API server refuses is refused by ``plan -f`` too, in one line that names the field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bad_specs import BAD_SPECS, BadSpec


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.id) for bad in BAD_SPECS])
def test_plan_refuses_a_bad_spec_in_one_line(bad: BadSpec, run: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "llama.json"
    document = {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama"},
        "spec": bad.spec(),
    }
    file.write_text(json.dumps(document))

    ended = run("plan", "-f", str(file))

    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert bad.field in ended.err
    assert bad.local in ended.err
