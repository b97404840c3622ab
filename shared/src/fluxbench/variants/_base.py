"""What a variant is, and the forms that it takes: as written, compiled, or with copied inputs."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fluxbench.device.detection import Device
from fluxbench.operations.workloads import Workload

if TYPE_CHECKING:
    import torch

# attention(q, k, v) -> out, each [batch, seq_len, heads, head_dim] (k and v with kv_heads), contiguous, of one dtype.
Attention = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]


class Form(enum.StrEnum):
    """How a variant is called; the value is what it adds to the variant's name."""

    EAGER = ""
    COPY = "_copy"
    COMPILE_DEFAULT = "_compile_d"
    COMPILE_MAX_AUTOTUNE = "_compile_ma"

    @property
    def compile_mode(self) -> str | None:
        """The `mode` of torch.compile, or None where the form is not compiled."""
        return {Form.COMPILE_DEFAULT: "default", Form.COMPILE_MAX_AUTOTUNE: "max-autotune"}.get(self)


def everywhere(device: Device, workload: Workload) -> str | None:
    """Say that a variant runs on every device and shape."""
    return None


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a library's attention can do beyond what is measured; a page's capability table is drawn from it.

    What can be tried says how it is called, and is tried on the device: a loader of an attention with a causal mask
    (query i sees keys 0 to i), of one for grouped query heads, of one that can be differentiated, and of one over
    several sequences in one batch entry, q, k and v `[1, sum(lengths), heads, head_dim]`. True: it is so by the
    library's documentation, and is not tried.
    """

    dtypes: tuple[str, ...]  # of q, k and v; "float8_e4m3fn" and "int8" are quantized from 16 bits within the call
    head_dims: tuple[int, ...]  # those of HEAD_DIMS that it takes
    minimum: tuple[int, int] | None  # compute capability; None: it runs on a CPU too
    causal: Callable[[], Attention] | bool = False
    gqa: Callable[[], Attention] | bool = False
    backward: Callable[[], Attention] | bool = False
    varlen: Callable[[tuple[int, ...]], Attention] | bool = False


HEAD_DIMS = (64, 96, 128, 192, 256)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One library's attention.

    `supports` returns why the variant cannot run, or None; it needs no torch. `load` imports the library, and
    nothing else may. `kernel_pattern` is a regular expression that the names of its attention kernels on a CUDA device
    match (`re.search`): a library that quietly runs another kernel is an error, not a result.
    """

    name: str
    load: Callable[[], Attention]
    capabilities: Capabilities | None = None  # every registered variant declares them
    supports: Callable[[Device, Workload], str | None] = everywhere
    forms: tuple[Form, ...] = (Form.EAGER,)
    precision_class: str = "exact"
    quantized_budget_rel_l2: float | None = None  # of a quantized variant alone
    kernel_pattern: str | None = None
    quantization_pattern: str | None = None  # of the kernels that quantize its inputs
    compiles: bool = False  # calls torch.compile in its eager form too
    jit: bool = False  # compiles its kernels at their first call, without torch.compile
    fullgraph: bool = True  # its compiled forms must be one graph
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment of its process, set before imports
    detail: Callable[[], str | None] | None = None  # after a call: what the library says that it chose
    note: str | None = None  # what a reader must know of it, such as a third party's build; a phrase
    packages: tuple[str, ...] = field(default=("torch",))  # distributions whose versions its records name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its forms, as records and notebooks use them."""
        return tuple(self.name + form.value for form in self.forms)


def sdpa(backend: str | None, **options: bool) -> Attention:
    """Return torch's scaled_dot_product_attention, on one backend of `torch.nn.attention.SDPBackend` or by choice.

    `options` are its own keywords, such as `is_causal` and `enable_gqa`.

    The inputs are passed as transposed views, as diffusers does. The output is contiguous in
    [batch, seq_len, heads, head_dim], which the next layer's flatten of heads and head_dim needs: a copy only where
    the backend wrote another layout.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def attend(q: Any, k: Any, v: Any) -> Any:
        out = scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options)
        return out.transpose(1, 2).contiguous()

    if backend is None:
        return attend
    chosen = getattr(SDPBackend, backend)

    def attend_on_backend(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(chosen):
            return attend(q, k, v)

    return attend_on_backend


def bounds(lengths: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return where sequences that lie one after the other begin and end: `[len(lengths) + 1]`, int32, from 0 on."""
    import torch

    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)


EVERY_FORM = (Form.EAGER, Form.COPY, Form.COMPILE_DEFAULT, Form.COMPILE_MAX_AUTOTUNE)
_UNTRIED = {"rocm": "AMD GPUs (ROCm)", "xpu": "Intel GPUs (XPU)", "mps": "Apple GPUs (Metal)"}


def needs(
    device: Device,
    workload: Workload,
    *,
    minimum: tuple[int, int],
    majors: tuple[int, ...] | None = None,
    dtypes: tuple[str, ...] | None = None,
    cpu: bool = False,
) -> str | None:
    """Say why a forward attention that needs this compute capability and these dtypes cannot run here, or None.

    `majors` are the only major versions of it that the library has kernels for; None: any from the minimum on.
    """
    if workload.direction != "forward":
        return f"only the forward pass is measured, got {workload.direction}"
    if dtypes and workload.dtype not in dtypes:
        return f"needs {' or '.join(dtypes)}, got {workload.dtype}"
    if device.kind == "cpu":
        return None if cpu else f"needs an NVIDIA GPU of compute capability {_dotted(minimum)} or newer; this is a CPU"
    if device.kind in _UNTRIED:
        return f"no variant has been checked on {_UNTRIED[device.kind]} yet; this is {device.name}"
    if device.compute_capability is None:
        return f"needs compute capability {_dotted(minimum)} or newer; that of {device.name} is unknown"
    if device.compute_capability < minimum:
        have = _dotted(device.compute_capability)
        return f"needs compute capability {_dotted(minimum)} or newer; {device.name} has {have}"
    if majors and device.compute_capability[0] not in majors:
        have = _dotted(device.compute_capability)
        known = " and ".join(f"{major}.x" for major in majors)
        return f"has kernels for compute capability {known} only; {device.name} has {have}"
    return None


_MOST_LENGTHS = 64  # that a compiled form is compiled for
_FILLS = r"Memset|FillFunctor"
_COPIES = r"(?i)memcpy|copy|clone|transpose|permute|contiguous|CatArray"


def part_of(variant: Variant, kernel: str) -> str:
    """Return what a kernel of a variant's call does, one of `records.PARTS`, by its name.

    Where the variant names no attention kernels, all that neither quantizes nor copies is the attention.
    """
    for part, pattern in (
        ("quantization", variant.quantization_pattern),
        ("attention", variant.kernel_pattern or "softmax"),
        ("copies", _COPIES),
        ("other", _FILLS),
    ):
        if pattern and re.search(pattern, kernel):
            return part
    return "other" if variant.kernel_pattern else "attention"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def build(variant: Variant, form: Form) -> Attention:
    """Load a variant in one of its forms. A compiled form compiles at its first call, in one graph where it can."""
    attention = variant.load()
    if form is Form.COPY:

        def attend_on_copies(q: Any, k: Any, v: Any) -> Any:
            # The same values, stored as [batch, heads, seq_len, head_dim].
            return attention(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)))

        return attend_on_copies
    if form.compile_mode is None:
        return attention
    import torch._dynamo.config

    # Each length is compiled by itself, and all share one code object.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MOST_LENGTHS)
    compiled = torch.compile(attention, mode=form.compile_mode, fullgraph=variant.fullgraph, dynamic=False)

    def attend_compiled(q: Any, k: Any, v: Any) -> Any:
        # With CUDA graphs, a call overwrites the output of the one before; this says that we are done with that.
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(q, k, v)

    return attend_compiled
