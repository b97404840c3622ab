"""Judge the Gluon kernels on this GPU (compute capability 9.0) with the inputs of many seeds, as a page judges them.

    PYTHONPATH=shared/src python shared/benchmarks/gluon_seeds.py [--seeds 200] [--tokens 123 1024]

A seed chooses dtype, head_dim, mask, heads to a head of k and v, and the kind of inputs; 96 neighbouring seeds have all
combinations. Each length runs in a process of its own, and prints which calls were wrong and why.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from itertools import product
from typing import Any

import torch

from fluxbench import operations, variants
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.operations import qkv
from fluxbench.variants.forms import EAGER, FormedVariant

LENGTHS = (1, 33, 123, 1024, 4097, 4415, 4608)
COMBINATIONS = list(product(qkv.KINDS_OF_GRADIENTS, (1, 2, 4, 8), (False, True), (64, 128), ("bfloat16", "float16")))
# Forward and backward passes of one token: its gradients of q and k are zero, of which nothing can be a share.
CHECKED = (
    ("gluon_flash", "attention_training"),
    ("gluon_flash_det", "attention_training"),
    ("gluon_int8_fp8", "attention"),
)


def shape_of(tokens: int, seed: int) -> tuple[dict[str, Any], str]:
    """Return the shape and the kind of inputs of a seed."""
    kind, group, causal, head_dim, dtype = COMBINATIONS[seed * 29 % len(COMBINATIONS)]
    kv_heads = 8 // group if tokens < 4000 else max(1, 4 // group)
    return {
        **{"batch": 1 + seed % 3 if tokens < 4000 else 1, "seq_len_q": tokens, "seq_len_k": tokens},
        **{"heads": kv_heads * group, "kv_heads": kv_heads, "head_dim_qk": head_dim, "head_dim_v": head_dim},
        **{"dtype": dtype, "causal": causal},
    }, kind


def wrong(name: str, operation: str, tokens: int, seed: int) -> str | None:
    """Return why a variant is wrong on the inputs of a seed, or None."""
    variant = variants.find(name).variant
    shape, kind = shape_of(tokens, seed)
    workload = operations.workload(operation, "seeds", shape, group="seeds", x=tokens, x_unit="tokens")
    found = operations.find(operation)
    if kind not in variant.gated_kinds(found.input_kinds):
        kind = "normal"
    case = Case.make(workload, kind, seed, torch.device("cuda"))
    outputs = found.bind(FormedVariant(variant, EAGER), shape)({key: x.clone() for key, x in case.inputs.items()})
    reason = judge(outputs, case, variant.quantized_budget_rel_l2, variant.precision_class)[1]
    return f"{kind} {shape}: {reason}" if reason else None


def check(tokens: int, seeds: int) -> int:
    """Judge one length with all seeds, and return how many calls were wrong."""
    count = 0
    for name, operation in CHECKED:
        operation = "attention" if tokens == 1 else operation
        reasons = [reason for seed in range(seeds) if (reason := wrong(name, operation, tokens, seed))]
        print(f"{tokens:5} tokens {name:16} {operation:19} {seeds - len(reasons)} of {seeds} right", flush=True)
        for reason in reasons[:5]:
            print(f"      {reason}", flush=True)
        count += len(reasons)
    return count


def main() -> None:
    """Start a process for each length, or be one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--tokens", type=int, nargs="*", default=list(LENGTHS))
    arguments = parser.parse_args()
    if len(arguments.tokens) == 1:
        sys.exit(check(arguments.tokens[0], arguments.seeds) > 0)
    command = [sys.executable, __file__, "--seeds", str(arguments.seeds), "--tokens"]
    processes = [subprocess.Popen([*command, str(tokens)]) for tokens in arguments.tokens]
    sys.exit(max(process.wait() for process in processes))


if __name__ == "__main__":
    main()
