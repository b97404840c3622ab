"""Kernels of `wrong/odd.py` are right, and pass whatever the seed, head_dim, length and kind of inputs.

With `SEEDS=200` (`make seeds`) it takes half an hour; by itself a few seconds.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from fakes import tokens
from workers import variant
from wrong import odd

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.variants.forms import EAGER, FormedVariant

SEEDS = int(os.environ.get("SEEDS", "1"))
SHAPES: dict[str, tuple[int, int, dict[str, Any]]] = {  # tokens, head_dim and more
    "33x64": (33, 64, {}),
    "77x96 grouped": (77, 96, {"heads": 4, "kv_heads": 2}),
    "123x128": (123, 128, {"heads": 3, "kv_heads": 1, "batch": 2}),
    "123x192 causal": (123, 192, {"causal": True}),
    "45x256": (45, 256, {}),
}
NOT_IN_FLOAT32 = {"cubic_exp2", "fp16_inside"}
KERNELS = {
    "bfloat16": {"exact": odd.EXACT, "rounded": odd.ROUNDED},
    "float16": {"exact": odd.EXACT, "rounded": odd.ROUNDED | odd.IN_FLOAT16},
    "float32": {
        "exact": {name: load for name, load in odd.EXACT.items() if name not in NOT_IN_FLOAT32},
        "tf32": odd.TF32,
    },
}


@pytest.mark.parametrize("dtype", KERNELS)
@pytest.mark.parametrize("name", SHAPES)
def test_no_right_kernel_is_refused(name: str, dtype: str) -> None:
    seq_len, head_dim, more = SHAPES[name]
    workload = tokens(name, seq_len, dtype=dtype, head_dim_qk=head_dim, head_dim_v=head_dim, **more)
    operation = operations.find("attention")
    bound = {
        (precision, key): operation.bind(FormedVariant(variant(key, load), EAGER), workload.shape)
        for precision, loads in KERNELS[dtype].items()
        for key, load in loads.items()
    }
    refused = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for kind in operation.input_kinds:
        for seed in range(SEEDS):
            case = Case.make(workload, kind, seed, torch.device("cpu"))
            for (precision, key), call in bound.items():
                if wrong := judge(call(case.inputs), case, None, precision)[1]:
                    refused.append((kind, seed, precision, key, wrong))
    torch.set_num_threads(threads)
    assert refused == []
