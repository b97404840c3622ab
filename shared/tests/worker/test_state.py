"""What a variant changes of the whole process is found, named and put back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from clocks import ON_CPU

from fluxbench.worker.state import ProcessState

CHANGES: dict[str, Callable[[], object]] = {
    "threads 2 -> 1": lambda: torch.set_num_threads(1),
    "default dtype torch.float32 -> torch.float64": lambda: torch.set_default_dtype(torch.float64),
    "default device cpu -> meta": lambda: torch.set_default_device("meta"),
    "float32 matmul precision highest -> medium": lambda: torch.set_float32_matmul_precision("medium"),
    "mkldnn True -> False": lambda: torch._C._set_mkldnn_enabled(False),
    "math sdp True -> False": lambda: torch.backends.cuda.enable_math_sdp(False),
    "autocast on cpu False -> True": lambda: torch.set_autocast_enabled("cpu", True),
    "deterministic algorithms False -> True": lambda: torch.use_deterministic_algorithms(True),
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_change_is_named_and_put_back(said: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        state = ProcessState(ON_CPU)
        assert state.restore() is None
        CHANGES[said]()
        assert state.restore() == f"changes process-wide state: {said}"
        assert state.restore() is None
    finally:
        torch.set_num_threads(threads)
