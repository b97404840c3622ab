"""Events are read strictly: a worker that writes something else is found out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sample_events import ERRORS, READY, checked, failed, parsed, profiled, timed

from fluxbench.bench import events
from fluxbench.bench.events import Checked, Failed, Probed, ProbeResult, Rates, Ready, Timed
from fluxbench.records.schema import Errors, KernelShare, RecordError
from fluxbench.records.status import Status

FLASH = KernelShare(name="flash", share=1.0, part="attention")
ANY: dict[str, Any] = timed("flex", 2, control_ms=(0.5,) * 4, cupti={"tiny": (0.9, 1.0)})


def changed(event: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return an event with another value at a path such as `burst.times` or `blocks.0.calls`."""
    whole = json.loads(json.dumps(event))
    *parents, last = path.split(".")
    place = whole
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    place[last] = value
    return dict(whole)


def test_events_are_typed_values() -> None:
    assert parsed(READY) == Ready(versions={"torch": "2.13.0"})
    right = parsed(checked("flex", kernels=[{"name": "flash", "share": 0.9, "part": "attention"}]))
    assert isinstance(right, Checked)
    assert right.errors == {"out": Errors(**ERRORS)}  # type: ignore[arg-type]
    assert right.kernels[0].part == "attention"
    assert parsed(failed("flex", status="ERROR", errors={})) == Failed(
        variant="flex", workload="tiny", status=Status.ERROR, reason="it is wrong"
    )
    taken = parsed(ANY)
    assert isinstance(taken, Timed)
    assert taken.burst is not None
    assert taken.profiled["tiny"].times == (0.9, 1.0, {"attention": 0.9}, (FLASH,))
    assert taken.profiled["tiny"].names == ["flash"]
    assert taken.burst.times[1] == pytest.approx((0.1, 0.15))
    rates = parsed({"event": "rates", "rates": {"matmul_size": 8192, "event_us": 1.5}})
    assert isinstance(rates, Rates)
    assert json.dumps(rates.rates) == '{"matmul_size": 8192, "event_us": 1.5}'  # a whole number stays one
    answer: Any = {"status": "wrong", "reason": "off", "rel_l2": 0.5, "budget": 0.1}
    assert parsed({"event": "probed", "variant": "flex", "found": {"causal": answer}}) == Probed(
        variant="flex", found={"causal": ProbeResult(**answer)}
    )


@pytest.mark.parametrize(
    "event",
    [
        *("", "{", "[]", "null", "7", b"\xff", "[" * 10_000, "{}"),
        {"event": "unknown"},
        {**READY, "more": 1},
        {"event": "ready"},
        changed(ANY, "burst.more", 1),
        changed(ANY, "blocks.0.ahead_ms", float("nan")),
        changed(ANY, "blocks.0.ahead_ms", float("inf")),
        changed(ANY, "blocks.0.ahead_ms", True),
        changed(ANY, "blocks.0.settled", 1),
        changed(ANY, "blocks.0.warm_up", 2.5),
        changed(ANY, "burst.samples_ms", {"tiny": [1.0, 0.0]}),
        changed(ANY, "burst.samples_ms", {"tiny": [-1.0]}),
        changed(ANY, "burst.samples_ms", [1.0]),
        changed(ANY, "burst.times", [[0.0]]),
        changed(ANY, "process", "0"),
        changed(ANY, "profiled", {"tiny": [0.9, 1.0]}),
        {**profiled("flex"), "times": [0.9, 1.0]},
        {key: value for key, value in ANY.items() if key != "slept_s"},
        failed("flex", status="BROKEN"),
        failed("flex", flag={"kind": "odd"}),
        checked("flex", kernels=[{"name": "flash", "share": 1.5, "part": None}]),
        checked("flex", errors={"out": {**ERRORS, "rel_l2": float("nan")}}),
        checked("flex", memory={"inputs_bytes": -1}),
        {"event": "rates", "rates": {"event_us": None}},
    ],
    ids=lambda event: repr(event)[:60],
)
def test_what_does_not_fit_is_refused(event: dict[str, Any] | str | bytes) -> None:
    with pytest.raises(RecordError, match="a worker must write events, got something else: "):
        events.parse(json.dumps(event) if isinstance(event, dict) else event)


def busy_s(**fields: Any) -> float:
    event = parsed(timed(**fields))
    assert isinstance(event, Timed)
    return event.busy_s


def test_a_device_is_busy_for_the_sum_of_what_was_timed() -> None:
    times = {"burst_ms": (1.0, 2.0, 3.0, 4.0), "beside_ms": 2.0, "control_ms": (0.5,) * 4}
    whole = busy_s(variant="flex", **times, block_ms=(1.0,) * 6, calls=5, workloads={"tiny": 1.0, "tinier": 0.5})
    assert whole == pytest.approx((1.5 * (10 + 8) + 2 + 1.5 * 30) / 1e3)
    own = busy_s(variant="torch_flash", **times, block_ms=None)  # what the reference takes beside itself counts once
    assert own == pytest.approx((10 + 2) / 1e3)
    assert busy_s(variant="flex", burst_ms=None, block_ms=(1.0,) * 6, calls=2) == pytest.approx(0.012)
