"""cuDNN's fused attention through the graph API of nvidia-cudnn-frontend, in 16 bits and in float8.

`cudnn_frontend`: exact; sums are float32. `cudnn_frontend_fp8`: quantized, within the call; q, k, v, the weights and
the output are float8 e4m3 with one scale a tensor, all that sdpa_fp8 takes, and the output is cast back (cuDNN itself
writes 16 bits on Blackwell alone). A graph is built at the first call with a shape; strides describe the layout.
Runs on compute capability 8.0 or newer, float8 on 9.0 or newer, with the cuDNN that torch was installed with.
"""

import functools
from collections.abc import Callable
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base

# The tensors of a graph.
Q, K, V, OUT, DESCALE_Q, DESCALE_K, DESCALE_V, DESCALE_S, SCALE_S, SCALE_O, AMAX_S, AMAX_O = range(1, 13)
_SCALE_WEIGHTS = 448.0  # what sdpa_fp8's own documentation (1.32.0) sets for e4m3 without dropout: no weight is over 1


def supports(device: Device, workload: Workload) -> str | None:
    """Say why 16 bits cannot run, or None."""
    return _needs(device, workload, minimum=(8, 0), largest=256, step=8)


def supports_float8(device: Device, workload: Workload) -> str | None:
    """Say why float8 cannot run, or None. Larger heads are for Hopper alone (sdpa_support_surface.h of 1.32.0)."""
    hopper = device.compute_capability is None or device.compute_capability[0] == 9
    return _needs(device, workload, minimum=(9, 0), largest=256 if hopper else 128, step=16)


def _needs(device: Device, workload: Workload, *, minimum: tuple[int, int], largest: int, step: int) -> str | None:
    if workload.causal:
        return "cudnn_frontend is measured without a causal mask"
    if workload.head_dim > largest or workload.head_dim % step:
        return f"cuDNN takes head_dim up to {largest} in steps of {step}, got {workload.head_dim}"
    return _base.needs(device, workload, minimum=minimum, dtypes=("bfloat16", "float16"))


def load(*, causal: bool = False) -> _base.Attention:
    """Return attention as a graph of one sdpa node."""
    import cudnn
    import torch

    types = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF}
    options = {"diagonal_band_right_bound": 0} if causal else {}

    def describe(graph: Any, q: Any, k: Any, v: Any) -> None:
        q_, k_, v_ = (_input(graph, uid, x, types[x.dtype]) for uid, x in ((Q, q), (K, k), (V, v)))
        out, _ = graph.sdpa(q=q_, k=k_, v=v_, attn_scale=q.shape[-1] ** -0.5, generate_stats=False, **options)
        _output(out, OUT, q, types[q.dtype])

    run = _runner(describe)

    def attend(q: Any, k: Any, v: Any) -> Any:
        out = torch.empty_like(q)
        run({Q: q, K: k, V: v, OUT: out})
        return out

    return attend


def load_float8(*, causal: bool = False) -> _base.Attention:
    """Return quantization and attention, as a graph of one sdpa_fp8 node."""
    import cudnn
    import torch

    from fluxbench.kernels.float8 import dequantize, quantize_per_head

    float8, float32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    options = {"right_bound": 0} if causal else {}
    kept: dict[Any, dict[int, Any]] = {}  # by device: what no call changes, and what none reads

    def describe(graph: Any, q: Any, k: Any, v: Any) -> None:
        tensors = {"q": (Q, q), "k": (K, k), "v": (V, v)}
        inputs = {name: _input(graph, uid, x, float8) for name, (uid, x) in tensors.items()}
        scales = {"descale_q": DESCALE_Q, "descale_k": DESCALE_K, "descale_v": DESCALE_V}
        scales |= {"descale_s": DESCALE_S, "scale_s": SCALE_S, "scale_o": SCALE_O}
        one = torch.empty(1, 1, 1, 1)
        inputs |= {name: _input(graph, uid, one, float32) for name, uid in scales.items()}
        out, _, *amaxes = graph.sdpa_fp8(**inputs, attn_scale=q.shape[-1] ** -0.5, generate_stats=False, **options)
        _output(out, OUT, q, float8)
        for amax, uid in zip(amaxes, (AMAX_S, AMAX_O), strict=True):
            _output(amax, uid, one, float32)

    run = _runner(describe)

    def attend(q: Any, k: Any, v: Any) -> Any:
        flat = (x.view(1, -1, *x.shape[2:]) for x in (q, k, v))  # one batch entry, and so one scale a tensor
        (q8, k8, v8), (descale_q, descale_k, descale_v) = quantize_per_head(*flat, groups=1)
        if q.device not in kept:
            values = {DESCALE_S: 1 / _SCALE_WEIGHTS, SCALE_S: _SCALE_WEIGHTS, AMAX_S: 0.0, AMAX_O: 0.0}
            kept[q.device] = {uid: torch.full((1,), value, device=q.device) for uid, value in values.items()}
        out = torch.empty_like(q, dtype=torch.float8_e4m3fn)
        # The output is a mean of rows of v: no element is over v's largest, and v's scale fits it.
        scales = {DESCALE_Q: descale_q, DESCALE_K: descale_k, DESCALE_V: descale_v, SCALE_O: descale_v.reciprocal()}
        tensors = {Q: q8.view(q.shape), K: k8.view(k.shape), V: v8.view(v.shape), OUT: out}
        run({**tensors, **scales, **kept[q.device]})
        return dequantize(out, descale_v, q.dtype)

    return attend


def version() -> str | None:
    """Return which cuDNN the graphs ran in."""
    import cudnn

    return f"cuDNN {cudnn.backend_version_string()}"


def _runner(describe: Callable[..., None]) -> Callable[[dict[int, Any]], None]:
    """Return what runs a graph, built at the first call with a shape, on torch's current stream."""
    import cudnn
    import torch

    @functools.cache
    def handle() -> Any:  # at the first call: it takes hold of the device
        try:
            return cudnn.create_handle()
        except RuntimeError as error:
            found = f"nvidia-cudnn-frontend {cudnn.__version__} finds no cuDNN that works"
            raise ImportError(f"{found}: {error}") from error

    built: dict[Any, tuple[Any, int]] = {}

    def build(q: Any, k: Any, v: Any) -> tuple[Any, int]:
        kinds = {"intermediate_data_type": cudnn.data_type.FLOAT, "compute_data_type": cudnn.data_type.FLOAT}
        graph = cudnn.pygraph(handle=handle(), **kinds)
        describe(graph, q, k, v)
        try:
            graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        except cudnn.cudnnGraphNotSupportedError as error:
            words = str(error).splitlines()[0]
            raise NotImplementedError(f"cuDNN {cudnn.backend_version_string()} refuses the graph: {words}") from error
        return graph, graph.get_workspace_size()

    def run(tensors: dict[int, Any]) -> None:
        q, k, v = (tensors[uid] for uid in (Q, K, V))
        shapes = (q.shape, k.shape, q.dtype, q.device)
        if shapes not in built:
            built[shapes] = build(q, k, v)
        graph, workspace_bytes = built[shapes]
        cudnn.set_stream(handle=handle(), stream=torch.cuda.current_stream(q.device).cuda_stream)
        workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=q.device)
        graph.execute(tensors, workspace, handle=handle())

    return run


def _heads_first(x: Any) -> tuple[list[int], list[int]]:
    """Return sizes and strides in cuDNN's order, [batch, heads, seq_len, head_dim]."""
    order = (0, 2, 1, 3)
    return [x.shape[i] for i in order], [x.stride(i) for i in order]


def _input(graph: Any, uid: int, x: Any, data_type: Any) -> Any:
    dim, stride = _heads_first(x)
    return graph.tensor(uid=uid, dim=dim, stride=stride, data_type=data_type)


def _output(tensor: Any, uid: int, x: Any, data_type: Any) -> None:
    dim, stride = _heads_first(x)
    tensor.set_output(True).set_uid(uid).set_data_type(data_type).set_dim(dim).set_stride(stride)


VARIANT = _base.Variant(
    name="cudnn_frontend",
    load=load,
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=_base.HEAD_DIMS,
        minimum=(8, 0),
        causal=lambda: load(causal=True),
        gqa=load,
        backward=True,  # sdpa_backward, a graph of its own
        varlen=True,  # by ragged offsets
    ),
    kernel_pattern=r"cudnn",
    jit=True,
    detail=version,
    packages=("torch", "nvidia-cudnn-frontend"),
)
FLOAT8 = _base.Variant(
    name="cudnn_frontend_fp8",
    load=load_float8,
    supports=supports_float8,
    capabilities=_base.Capabilities(
        dtypes=("float8_e4m3fn",),
        head_dims=_base.HEAD_DIMS,
        minimum=(9, 0),
        causal=lambda: load_float8(causal=True),
        gqa=load_float8,
        backward=True,  # sdpa_fp8_backward, a graph of its own
        varlen=True,  # by lengths and padding
    ),
    precision_class="quantized",
    # Twice the relative L2 error of the same quantization emulated in float32 on `inputs.make`, at 4608 tokens and
    # head_dim 128: 0.0606 on normal inputs and 0.0262 on flux ones. Float8 outputs are 0.026 of it.
    quantized_budget_rel_l2=0.12,
    kernel_pattern=r"cudnn",
    quantization_pattern=r"quantize",
    jit=True,
    detail=version,
    packages=("torch", "triton", "nvidia-cudnn-frontend"),
)
