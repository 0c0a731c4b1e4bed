import dataclasses
from pathlib import Path

import yaml

from evorl.record.core import Record


def test_yaml_restates_the_defaults() -> None:
    text = (Path(__file__).parents[2] / "conf" / "record" / "default.yaml").read_text()
    content = yaml.safe_load(text)
    assert content.pop("_target_") == "evorl.record.core.Record"
    assert content | {"tags": tuple(content["tags"])} == dataclasses.asdict(Record())
    assert all("#" in line for line in text.splitlines()[2:])
