"""The columns, aliases and units that a table may have; `docs/audit.md` documents the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fluxbench.analysis.audit.claim import Metric

# A column -> other names for it. Case, and spaces for underscores, do not count.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "source": (),
    "table": (),
    "gpu": ("device", "gpu_name", "card"),
    "implementation": ("variant", "backend"),
    "over": ("baseline",),
    "pass": ("direction", "profile_pass", "mode"),
    "dtype": ("data_type", "precision"),
    "precision_class": (),
    "causal": ("is_causal", "attn_mask"),
    "batch": ("batch_size", "bs"),
    "seq_len": ("seqlen", "seq_len_q", "q_seqlen", "sequence_length"),
    "kv_seq_len": ("seq_len_k", "kv_seqlen"),
    "heads": ("nheads", "num_heads", "num_q_heads"),
    "kv_heads": ("nheads_kv", "num_kv_heads"),
    "head_dim": ("headdim", "head_dim_qk"),
    "head_dim_v": ("head_dim_vo",),
    "window": ("window_size", "sliding_window_size"),
    "latent_dim": (),
    "layer": (),
    "model": (),
    "component": (),
    "per": (),
    "workload": (),
    "status": (),
    "value": (),
    "unit": (),
}
# A column of values -> what it states, and in which unit.
VALUES: Mapping[str, tuple[Metric, str]] = {
    **dict.fromkeys(("median_ms", "burst_median_ms", "time_ms", "latency_ms", "ms"), (Metric.TIME, "ms")),
    **dict.fromkeys(("time_us", "us"), (Metric.TIME, "us")),
    "time_s": (Metric.TIME, "s"),
    "tflops": (Metric.RATE, "TFLOP/s"),
    "speedup": (Metric.SPEEDUP, "x"),
    "memory_mb": (Metric.BYTES, "MB"),
    "memory_gb": (Metric.BYTES, "GB"),
    "memory_gib": (Metric.BYTES, "GiB"),
}
# A unit -> what it states, and the factor to ms, TFLOP/s, bytes, %, samples/s or tokens/s.
UNITS: Mapping[str, tuple[Metric, float]] = {
    "s": (Metric.TIME, 1e3),
    "ms": (Metric.TIME, 1.0),
    **dict.fromkeys(("us", "µs", "μs"), (Metric.TIME, 1e-3)),
    "ns": (Metric.TIME, 1e-6),
    **dict.fromkeys(("TFLOP/s", "TFLOPS", "TFLOPs/s"), (Metric.RATE, 1.0)),
    "GFLOP/s": (Metric.RATE, 1e-3),
    "PFLOP/s": (Metric.RATE, 1e3),
    "% of peak": (Metric.SHARE, 1.0),
    "x": (Metric.SPEEDUP, 1.0),
    "samples/s": (Metric.SAMPLES, 1.0),
    "tokens/s": (Metric.TOKENS, 1.0),
    "B": (Metric.BYTES, 1.0),
    "kB": (Metric.BYTES, 1e3),
    "MB": (Metric.BYTES, 1e6),
    "GB": (Metric.BYTES, 1e9),
    "KiB": (Metric.BYTES, 2.0**10),
    "MiB": (Metric.BYTES, 2.0**20),
    "GiB": (Metric.BYTES, 2.0**30),
    "MB before backward": (Metric.BYTES, 1e6),
}
BINARY = {1e3: 2.0**10, 1e6: 2.0**20, 1e9: 2.0**30}  # how MB and the like may be meant too
PASSES = {
    "forward": "forward", "fwd": "forward", "prefill": "forward",
    "backward": "backward", "bwd": "backward",
    **dict.fromkeys(("forward+backward", "forward_backward", "fwd+bwd", "fwd_bwd", "training"), "forward+backward"),
    "generation": "generation",
}  # fmt: skip
CAUSAL = {
    **dict.fromkeys(("true", "1", "yes", "causal", "top_left", "bottom_right"), True),
    **dict.fromkeys(("false", "0", "no", "full", "none", "no_mask"), False),
}
NO_WINDOW = ("", "-1", "none", "full", "false", "(-1, -1)")
DTYPES = {
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "fp16", "half"), "float16"),
    **dict.fromkeys(("float32", "fp32", "float", "tf32"), "float32"),
}
VALUE_COLUMNS = frozenset({*VALUES, "value", "unit", "status"})
NARROW = re.compile(r"(fp|float|int|nvfp|mxfp)[48]|e4m3|e5m2|quant|sage", re.IGNORECASE)
COMPONENTS = ("attention matrix", "kv cache", "total")
LAYERS = ("projections", "latent")  # a whole layer: with projections of q, k, v and the output; through a latent

_NAMES = {alias: name for name, aliases in ALIASES.items() for alias in (name, *aliases)}


def resolved(header: Sequence[str]) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """Return where each known column stands, by its own name, those of values by theirs; and pairs of one meaning.

    Of such a pair the first is the one that stands; a table of several operations may have a column for each. Raises
    `ValueError`, a sentence, where two columns hold the same values, no column is known, or none holds values.
    """
    places: dict[str, int] = {}
    twice: list[tuple[int, int]] = []
    for index, head in enumerate(header):
        plain = re.sub(r"\s+", "_", head.strip().lower())
        name = plain if plain in VALUES else _NAMES.get(plain)
        if name is None:
            continue
        if name not in places:
            places[name] = index
        elif name in VALUE_COLUMNS:
            raise ValueError(f"one column must give {name}, got {header[places[name]][:40]!r} and {head[:40]!r}")
        else:
            twice.append((places[name], index))
    if ("value" in places) != ("unit" in places):
        missing = "unit" if "value" in places else "value"
        raise ValueError(f"a table with value or unit must have both, got no {missing}")
    if not ("value" in places or any(name in places for name in VALUES)):
        known = ", ".join(head[:40] for head in header[:8])
        raise ValueError(f"a column must give value with unit, or be one of {', '.join(VALUES)}, got {known or 'none'}")
    return places, twice
