"""What TensorBoard gets beside the numbers: the layout of its custom scalars, and hyper-parameters."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalars
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
from tensorboard.util.tensor_util import make_tensor_proto

from evorl.record.layout import charts, pattern


def layout_summary() -> Summary:
    """Return the sections and charts of `evorl.record.layout` for the dashboard of custom scalars."""
    layout = layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title=section,
                chart=[
                    layout_pb2.Chart(
                        title=title, multiline=layout_pb2.MultilineChartContent(tag=[pattern(name) for name in names])
                    )
                    for title, names in shown.items()
                ],
                closed=section != next(iter(charts())),
            )
            for section, shown in charts().items()
        ]
    )
    value = Summary.Value(
        tag=custom_scalars.CONFIG_SUMMARY_TAG,
        metadata=custom_scalars.create_summary_metadata(),
        tensor=make_tensor_proto(layout.SerializeToString()),
    )
    return Summary(value=[value])


def start_summary(config: Mapping[str, Any]) -> Summary:
    """Return the hyper-parameters of a run. Runs that differ in their seed only are one group, shown by their means."""
    values = dict(_flat({key: value for key, value in config.items() if key != "record"}))
    group = json.dumps({key: value for key, value in values.items() if key != "seed"}, sort_keys=True)
    summary: Summary = summary_v2.hparams_pb(values, trial_id=hashlib.sha256(group.encode()).hexdigest())
    return summary


def end_summary() -> Summary:
    """Return the end of a run that did not fail. TensorBoard keeps the first end of a run, which may yet go on."""
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS, end_time_secs=time.time())
    data = plugin_data_pb2.HParamsPluginData(session_end_info=end)
    value = Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG,
        metadata=metadata.create_summary_metadata(data),
        tensor=metadata.NULL_TENSOR,
    )
    return Summary(value=[value])


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool | float | str]]:
    """Yield dotted keys with values that TensorBoard can sort; others as JSON."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            plain = isinstance(value, bool | int | float | str)
            yield f"{prefix}{key}", value if plain else json.dumps(value, default=str)
