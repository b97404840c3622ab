"""cuDNN's fused attention through the graph API of nvidia-cudnn-frontend, in 16 bits and in float8.

`cudnn_frontend`: exact; sums are float32. `cudnn_frontend_fp8`: quantized, within the call; q, k, v, the weights and
the output are float8 e4m3 with one scale a tensor, all that sdpa_fp8 takes, and the output is cast back (cuDNN itself
writes 16 bits on Blackwell alone). A graph is built at the first call; strides describe the layout.
The backward pass in 16 bits is a graph of its own; `cudnn_frontend_det` asks it for its deterministic algorithm.
Runs on compute capability 8.0 or newer, float8 on 9.0 or newer, with the cuDNN that torch was installed with.
"""

import functools
from collections.abc import Callable
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

# The tensors of a graph.
Q, K, V, OUT, DESCALE_Q, DESCALE_K, DESCALE_V, DESCALE_S, SCALE_S, SCALE_O, AMAX_S, AMAX_O = range(1, 13)
STATS, DOUT, DQ, DK, DV = range(13, 18)
_SCALE_WEIGHTS = 448.0  # what sdpa_fp8's own documentation (1.32.0) sets for e4m3 without dropout: no weight is over 1


def refuses(device: Device, call: AttentionCall) -> str | None:
    """Return why 16 bits cannot run although their capabilities do not exclude it, or None."""
    return _refuses_head_dim(call.head_dim_qk, largest=256, step=8)


def refuses_float8(device: Device, call: AttentionCall) -> str | None:
    """Return the same of float8. Larger heads are for Hopper alone (sdpa_support_surface.h of 1.32.0)."""
    hopper = device.compute_capability is None or device.compute_capability[0] == 9
    return _refuses_head_dim(call.head_dim_qk, largest=256 if hopper else 128, step=16)


def _refuses_head_dim(head_dim: int, largest: int, step: int) -> str | None:
    if head_dim <= largest and head_dim % step == 0:
        return None
    return f"cuDNN takes head_dim up to {largest} in steps of {step}, got {head_dim}"


def load(call: AttentionCall, *, deterministic: bool = False) -> Attention:
    """Return attention as a graph of one sdpa node, with one of sdpa_backward if it must be differentiable."""
    import cudnn
    import torch

    data_type = {"bfloat16": cudnn.data_type.BFLOAT16, "float16": cudnn.data_type.HALF}[call.dtype]
    options: dict[str, Any] = {"attn_scale": call.head_dim_qk**-0.5}
    options |= {"diagonal_band_right_bound": 0} if call.causal else {}

    def describe(graph: Any, tensors: dict[int, Any]) -> None:
        q, k, v = (_input(graph, uid, tensors[uid], data_type) for uid in (Q, K, V))
        out, stats = graph.sdpa(q=q, k=k, v=v, **options, generate_stats=call.backward)
        _output(out, OUT, tensors[OUT], data_type)
        if call.backward:
            _output(stats, STATS, tensors[STATS].transpose(1, 2), cudnn.data_type.FLOAT)

    def describe_backward(graph: Any, tensors: dict[int, Any]) -> None:
        uids = {"q": Q, "k": K, "v": V, "o": OUT, "dO": DOUT}
        inputs = {name: _input(graph, uid, tensors[uid], data_type) for name, uid in uids.items()}
        stats = _input(graph, STATS, tensors[STATS].transpose(1, 2), cudnn.data_type.FLOAT)
        gradients = graph.sdpa_backward(**inputs, stats=stats, **options, use_deterministic_algorithm=deterministic)
        for gradient, uid in zip(gradients, (DQ, DK, DV), strict=True):
            _output(gradient, uid, tensors[uid], data_type)

    run, run_backward = _runner(describe), _runner(describe_backward)

    def attend(q: Any, k: Any, v: Any) -> Any:
        out = torch.empty_like(q)
        run({Q: q, K: k, V: v, OUT: out})
        return out

    class Differentiable(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            out = torch.empty_like(q)
            stats = torch.empty(q.shape[0], q.shape[2], q.shape[1], 1, dtype=torch.float32, device=q.device)
            run({Q: q, K: k, V: v, OUT: out, STATS: stats})
            ctx.save_for_backward(q, k, v, out, stats)
            return out

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            q, k, v, out, stats = ctx.saved_tensors
            gradients = {DQ: torch.empty_like(q), DK: torch.empty_like(k), DV: torch.empty_like(v)}
            run_backward({Q: q, K: k, V: v, OUT: out, STATS: stats, DOUT: dout.contiguous(), **gradients})
            return tuple(gradients.values())

    def attend_in_training(q: Any, k: Any, v: Any) -> Any:
        return Differentiable.apply(q, k, v)

    return attend_in_training if call.backward else attend


def load_float8(call: AttentionCall) -> Attention:
    """Return quantization and attention, as a graph of one sdpa_fp8 node."""
    import cudnn
    import torch

    from fluxbench.kernels.float8 import dequantize, quantize_per_head

    float8, float32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    options = {"right_bound": 0} if call.causal else {}
    scales = {
        "descale_q": DESCALE_Q, "descale_k": DESCALE_K, "descale_v": DESCALE_V,
        "descale_s": DESCALE_S, "scale_s": SCALE_S, "scale_o": SCALE_O,
    }  # fmt: skip

    def describe(graph: Any, tensors: dict[int, Any]) -> None:
        one = torch.empty(1, 1, 1, 1)
        inputs = {name: _input(graph, uid, tensors[uid], float8) for name, uid in (("q", Q), ("k", K), ("v", V))}
        inputs |= {name: _input(graph, uid, one, float32) for name, uid in scales.items()}
        out, _, *amaxes = graph.sdpa_fp8(**inputs, attn_scale=call.head_dim_qk**-0.5, generate_stats=False, **options)
        _output(out, OUT, tensors[OUT], float8)
        for amax, uid in zip(amaxes, (AMAX_S, AMAX_O), strict=True):
            _output(amax, uid, one, float32)

    run = _runner(describe)

    @functools.cache
    def constants(device: Any) -> dict[int, Any]:
        """Return what no call changes, and what none reads."""
        values = {DESCALE_S: 1 / _SCALE_WEIGHTS, SCALE_S: _SCALE_WEIGHTS, AMAX_S: 0.0, AMAX_O: 0.0}
        return {uid: torch.full((1,), value, device=device) for uid, value in values.items()}

    def attend(q: Any, k: Any, v: Any) -> Any:
        flat = (x.view(1, -1, *x.shape[2:]) for x in (q, k, v))  # one batch entry, and so one scale a tensor
        (q8, k8, v8), (descale_q, descale_k, descale_v) = quantize_per_head(*flat, groups=1)
        out = torch.empty_like(q, dtype=torch.float8_e4m3fn)
        # The output is a mean of rows of v: no element is over v's largest, and v's scale fits it.
        scaled = {DESCALE_Q: descale_q, DESCALE_K: descale_k, DESCALE_V: descale_v, SCALE_O: descale_v.reciprocal()}
        tensors = {Q: q8.view(q.shape), K: k8.view(k.shape), V: v8.view(v.shape), OUT: out}
        run({**tensors, **scaled, **constants(q.device)})
        return dequantize(out, descale_v, q.dtype)

    return attend


def version() -> str:
    """Return which cuDNN the graphs run in."""
    import cudnn

    return f"cuDNN {cudnn.backend_version_string()}"


def _runner(describe: Callable[[Any, dict[int, Any]], None]) -> Callable[[dict[int, Any]], None]:
    """Return what runs a graph, built at the first call, on torch's current stream."""
    import cudnn
    import torch

    built: list[tuple[Any, Any, int]] = []  # handle, graph, bytes of its workspace

    def build(tensors: dict[int, Any]) -> tuple[Any, Any, int]:
        try:
            handle = cudnn.create_handle()
        except RuntimeError as error:
            frontend = f"nvidia-cudnn-frontend {cudnn.__version__}"
            raise ImportError(f"{frontend} finds no cuDNN that works: {error}") from error
        kinds = {"intermediate_data_type": cudnn.data_type.FLOAT, "compute_data_type": cudnn.data_type.FLOAT}
        graph = cudnn.pygraph(handle=handle, **kinds)
        describe(graph, tensors)
        try:
            graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        except cudnn.cudnnGraphNotSupportedError as error:
            raise NotImplementedError(f"{version()} refuses the graph: {str(error).splitlines()[0]}") from error
        return handle, graph, graph.get_workspace_size()

    def run(tensors: dict[int, Any]) -> None:
        if not built:
            built.append(build(tensors))
        handle, graph, workspace_bytes = built[0]
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream(tensors[Q].device).cuda_stream)
        workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=tensors[Q].device)
        graph.execute(tensors, workspace, handle=handle)

    return run


def _input(graph: Any, uid: int, x: Any, data_type: Any) -> Any:
    dim, stride = _heads_first(x)
    return graph.tensor(uid=uid, dim=dim, stride=stride, data_type=data_type)


def _output(tensor: Any, uid: int, x: Any, data_type: Any) -> None:
    dim, stride = _heads_first(x)
    tensor.set_output(True).set_uid(uid).set_data_type(data_type).set_dim(dim).set_stride(stride)


def _heads_first(x: Any) -> tuple[list[int], list[int]]:
    """Return sizes and strides in cuDNN's order, [batch, heads, seq_len, head_dim]."""
    return list(x.transpose(1, 2).shape), list(x.transpose(1, 2).stride())


def _capabilities(
    minimum: tuple[int, int], backward: _base.Support, computes_in: tuple[str, ...] = ()
) -> _base.Capabilities:
    return _base.Capabilities(
        dtypes=("bfloat16", "float16"),
        computes_in=computes_in,
        minimum=minimum,
        causal=_base.YES,
        gqa=_base.YES,
        backward=backward,
        varlen=_base.DOCUMENTED,  # by ragged offsets, and in float8 by lengths and padding
    )


VARIANT = _base.Variant(
    name="cudnn_frontend",
    label="cuDNN Frontend",
    load=load,
    capabilities=_capabilities((8, 0), _base.YES),
    refuses=refuses,
    kernel_pattern=r"cudnn",
    backward_kernel_pattern=r"cudnn",
    jit=True,
    detail=version,
    packages=("torch", "nvidia-cudnn-frontend"),
)
DETERMINISTIC = _base.deterministic(VARIANT, lambda call: load(call, deterministic=True), "cuDNN Frontend det.")
FLOAT8 = _base.Variant(
    name="cudnn_frontend_fp8",
    label="cuDNN Frontend float8",
    load=load_float8,
    capabilities=_capabilities((9, 0), _base.DOCUMENTED, computes_in=("float8_e4m3fn",)),  # by sdpa_fp8_backward
    refuses=refuses_float8,
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
