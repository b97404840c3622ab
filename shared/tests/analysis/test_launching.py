"""Whether the device waits for the host in a call."""

from __future__ import annotations

import msgspec
import pytest
from sample_records import changed, record

from fluxbench.analysis.launching import is_launching
from fluxbench.records.schema import BURST, Cupti


@pytest.mark.parametrize(
    ("samples_ms", "launch_ms", "expected"),
    [
        (((13.0, 12.9, 13.1), (6.0, 6.0, 6.1), (5.9, 6.0, 6.0)), 5.9, True),  # a process whose host was slow
        (((13.0, 12.9, 13.1), (6.0, 6.0, 6.1), (5.9, 6.0, 6.0)), 0.5, False),  # it was the device that was slow there
        (((6.0, 13.0, 6.1), (6.0,), (13.0,)), 5.9, False),  # single calls that stalled
    ],
)
def test_the_slowest_process_tells_where_launching_takes_about_as_long_as_a_call(
    samples_ms: tuple[tuple[float, ...], ...], launch_ms: float, *, expected: bool
) -> None:
    full = Cupti(events_ms=6.0, kernels_ms=5.9, span_ms=6.0)
    busy = record("torch_flash", burst_ms=6.0, regimes=[BURST], launch_ms=launch_ms, cupti=full)
    burst = msgspec.structs.replace(busy.timings[BURST], samples_ms=samples_ms)
    assert is_launching(changed(busy, timings={BURST: burst})) is expected
