"""What a variant is: one library's attention, what it declares to be capable of, and why it cannot run somewhere."""

from __future__ import annotations

import enum
import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fluxbench.device.model import Device
from fluxbench.operations.precision import CLASSES, EXACT
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants.forms import EAGER, Form

if TYPE_CHECKING:
    import torch

HEAD_DIMS = (64, 96, 128, 192, 256)
ATTENTION = "attention"  # the part, see `part_of`
TOP_KERNELS = 6  # of a profiled call that are kept, and as many of its attention; a longer list may lack some
_USUAL_ATTENTION = r"(?i)softmax|flash|fmha|sdpa"  # what kernels of attention are named, where a variant names none
# Inductor also names what it fuses after the operator that takes the result: a rotary embedding after the attention.
_FUSED, _TAKEN_BY = r"triton_(poi|red|per)_", r"(_scaled_dot_product_[a-z_]*?|flex_)attention"


class Support(enum.Enum):
    """What a library offers of a capability."""

    NO = "no"
    DOCUMENTED = "documented"  # by another call than the one here, so that it is not tried
    YES = "yes"  # by `Variant.load`; tried on the device


NO, DOCUMENTED, YES = Support.NO, Support.DOCUMENTED, Support.YES


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a library's attention can do; `supports` and a page's capability table follow from it."""

    dtypes: tuple[str, ...]  # of q, k and v
    computes_in: tuple[str, ...] = ()  # what q, k and v are quantized to within the call: "int8", "float8_e4m3fn"
    head_dims: tuple[int, ...] = (
        HEAD_DIMS  # those of `HEAD_DIMS` that it takes; all of a library that takes a few sizes
    )
    minimum: tuple[int, int]  # compute capability
    majors: tuple[int, ...] | None = None  # the only major versions of it that there are kernels for; None: all
    cpu: bool = False  # it runs on a CPU too
    causal: Support = NO
    causal_rectangular: bool = False  # its causal mask is aligned to the end where there are fewer queries than keys
    gqa: Support = NO
    backward: Support = NO
    varlen: Support = NO
    paged: Support = NO  # one query a sequence, on a cache in pages
    separate_head_dims: bool = False  # v may have another head_dim than q and k


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One library's attention.

    `load` imports the library, and nothing else may; it returns `attention(q, k, v)` for such calls. `refuses` says
    what the library cannot do beyond what `capabilities` tell. The kernel patterns are regular expressions that the
    names of its attention kernels on a CUDA device match (`re.search`): a library that quietly runs another kernel is
    an error, not a result.
    """

    name: str
    label: str  # its name for people, as pages show it
    load: Callable[[AttentionCall], Attention]
    capabilities: Capabilities
    refuses: Callable[[Device, AttentionCall], str | None] = lambda device, call: None
    forms: tuple[Form, ...] = (EAGER,)
    precision_class: str = EXACT  # of `operations.precision.CLASSES`
    quantized_budget_rel_l2: float | None = None  # of a quantized variant alone
    kernel_pattern: str | None = None
    backward_kernel_pattern: str | None = None
    quantization_pattern: str | None = None  # of the kernels that quantize its inputs
    compiles: bool = False  # calls torch.compile in its eager form too
    jit: bool = False  # compiles its kernels at their first call, without torch.compile
    plans: bool = False  # makes a plan of each shape at its first call, for half a second on the host (cuDNN by torch)
    fullgraph: bool = True  # its compiled forms must be one graph
    holds_scores: bool = False  # all scores of a call at once: unfused attention
    score_bytes: tuple[int, int] = (0, 0)  # that it then holds a score at most, of 16 bits: forward, and with gradients
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment of its process, set before imports
    detail: Callable[[], str | None] | None = None  # after a call: what the library says that it chose
    note: str | None = None  # what a reader must know of it, such as a third party's build; a phrase
    packages: tuple[str, ...] = field(default=("torch",))  # distributions whose versions its records name
    diffusers: str = ""  # its backend in diffusers; empty where diffusers has none, or does not find this build
    base: Variant | None = None  # of a slowed form: what it slows
    deterministic_of: str | None = None  # of a deterministic backward pass: the variant that it is a choice of
    is_another_way: bool = False  # to load kernels of other variants of this repository
    only_decodes: bool = False  # made for one query a sequence, and measured with that alone

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its forms, as records and notebooks use them."""
        return tuple(self.name + form.suffix for form in self.forms)

    def supports(self, device: Device, call: AttentionCall) -> str | None:
        """Return why it cannot run such calls on a device, or None. Needs no torch."""
        call = self.given(call)
        return _of_device(self.capabilities, device, call) or _of_call(self, call) or self.refuses(device, call)

    def given(self, call: AttentionCall) -> AttentionCall:
        """Return the call that the library gets: with v padded to one head_dim, where that may be and must."""
        if not call.pads_values or self.capabilities.separate_head_dims:
            return call
        return replace(call, head_dim_v=max(call.head_dim_qk, call.head_dim_v))

    def gated_kinds(self, kinds: Sequence[str]) -> list[str]:
        """Return those of these kinds of inputs on which its error budget holds."""
        return [kind for kind in kinds if kind not in CLASSES[self.precision_class].ungated]

    def pattern(self, call: AttentionCall) -> str | None:
        """Return the pattern of the kernels that such a call must run."""
        return self.backward_kernel_pattern if call.backward else self.kernel_pattern


def deterministic(of: Variant, load: Callable[[AttentionCall], Attention], label: str, **changes: Any) -> Variant:
    """Return the form of a variant whose backward pass is deterministic; `changes` are further fields that differ."""
    name = f"{of.name}_det"
    return replace(
        of, name=name, label=label, load=load, forms=(EAGER,), diffusers="", deterministic_of=of.name, **changes
    )


def _of_device(declared: Capabilities, device: Device, call: AttentionCall) -> str | None:
    minimum = (8, 0) if call.dtype == "bfloat16" else (5, 0)
    minimum = max(minimum, declared.minimum)
    if device.kind == "cpu":
        needs = f"needs an NVIDIA GPU of compute capability {_dotted(declared.minimum)} or newer; this is a CPU"
        return None if declared.cpu else needs
    if device.kind != "cuda":
        return f"no variant has been checked on {device.kind} devices yet; this is {device.name}"
    if device.compute_capability is None:
        return f"needs compute capability {_dotted(minimum)} or newer; that of {device.name} is unknown"
    have = _dotted(device.compute_capability)
    if device.compute_capability < minimum:
        return f"needs compute capability {_dotted(minimum)} or newer; {device.name} has {have}"
    if declared.majors and device.compute_capability[0] not in declared.majors:
        known = " and ".join(f"{major}.x" for major in declared.majors)
        return f"has kernels for compute capability {known} only; {device.name} has {have}"
    return None


def _of_call(variant: Variant, call: AttentionCall) -> str | None:
    declared, name = variant.capabilities, variant.name
    if variant.deterministic_of and not call.backward:
        return f"{name} differs from {variant.deterministic_of} in its backward pass alone"
    if variant.only_decodes and (call.seq_len_q != 1 or call.causal or call.backward):
        return f"{name} is measured in decoding alone, with one query a sequence"
    if call.dtype not in declared.dtypes:
        return f"{name} takes {' and '.join(declared.dtypes)}, got {call.dtype}"
    for head_dim in {call.head_dim_qk, call.head_dim_v}:
        if head_dim > max(declared.head_dims) or (head_dim in HEAD_DIMS and head_dim not in declared.head_dims):
            return f"{name} takes head_dim {', '.join(map(str, declared.head_dims))}, got {head_dim}"
    if call.head_dim_qk != call.head_dim_v and not declared.separate_head_dims:
        return f"{name} needs one head_dim, got {call.head_dim_qk} of q and k and {call.head_dim_v} of v"
    for asked, support, what in (
        (call.causal, declared.causal, "a causal mask"),
        (call.grouped, declared.gqa, f"{call.heads} heads of q on {call.kv_heads} of k and v"),
        (call.backward, declared.backward, "a backward pass"),
        (bool(call.lengths), declared.varlen, "several sequences in one call"),
        (bool(call.page_size), declared.paged, "a cache in pages"),
    ):
        if asked and support is not YES:
            return f"{name} does not support {what}" if support is NO else f"{name} is measured without {what}"
    if call.causal and call.seq_len_q != call.seq_len_k and not declared.causal_rectangular:
        return f"the causal mask of {name} needs as many queries as keys, got {call.seq_len_q} and {call.seq_len_k}"
    return None


def sdpa(backend: str | None, call: AttentionCall) -> Attention:
    """Return torch's scaled_dot_product_attention, on one backend of `torch.nn.attention.SDPBackend` or by choice.

    The inputs are passed as transposed views, as diffusers does. The output is contiguous in
    [batch, seq_len, heads, head_dim], which the next layer's flatten of heads and head_dim needs: a copy only where
    the backend wrote another layout. It takes no table of pages: those are gathered within the call.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    options = {"is_causal": True} if call.causal else {}
    options |= {"enable_gqa": True} if call.grouped else {}

    def attend(q: Any, k: Any, v: Any, table: Any = None) -> Any:
        if table is not None:
            k, v = (_gathered(call, x, table) for x in (k, v))
        out = scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options)
        return out.transpose(1, 2).contiguous()

    if backend is None:
        return attend
    chosen = getattr(SDPBackend, backend)

    def attend_on_backend(q: Any, k: Any, v: Any, table: Any = None) -> Any:
        with sdpa_kernel(chosen):
            return attend(q, k, v, table)

    return attend_on_backend


def _gathered(call: AttentionCall, x: Any, table: Any) -> Any:
    """Return k or v of `[batch, seq_len_k, kv_heads, head_dim]` from pages."""
    whole = x.index_select(0, table.view(-1)).view(call.batch, call.pages * call.page_size, *x.shape[2:])
    return whole[:, : call.seq_len_k]


@functools.cache
def cached_lengths(batch: int, seq_len_k: int, device: torch.device) -> torch.Tensor:
    """Return how many tokens of each sequence are cached, `[batch]`, int32."""
    import torch

    return torch.full((batch,), seq_len_k, dtype=torch.int32, device=device)


def varlen(call: AttentionCall, device: torch.device, of_k: str = "k") -> dict[str, Any]:
    """Return what libraries ask of several sequences, by its usual names; `of_k` is what they call keys and values.

    These are where each sequence begins and ends, `[len(lengths) + 1]`, int32, from 0 on, and the longest one's length.
    """
    import torch

    ends = torch.tensor([0, *itertools.accumulate(call.lengths)], dtype=torch.int32, device=device)
    sides = ("q", of_k)
    longest = max(call.lengths)
    return {f"cu_seqlens_{side}": ends for side in sides} | {f"max_seqlen_{side}": longest for side in sides}


def only_output(result: Any) -> Any:
    """Return the output of a library that returns `(out, lse)`, as some of its versions do."""
    return result[0] if isinstance(result, tuple) else result


def part_of(variant: Variant, call: AttentionCall, parts: Mapping[str, str], kernel: str) -> str:
    """Return what a kernel of a variant's call does, by its name: "quantization", "attention", or a part of `parts`.

    `parts` are an operation's. A call with gradients may run the forward kernels too. Where the variant names no
    attention kernels, all that has no part is the attention.
    """
    if re.match(_FUSED, kernel):
        kernel = re.sub(_TAKEN_BY, "", kernel)
    pattern = variant.pattern(call)
    both = (pattern, variant.kernel_pattern) if call.backward else (pattern,)
    attention = [each for each in both if each] or [_USUAL_ATTENTION]  # not joined: each has flags of its own
    of_variant = [("quantization", variant.quantization_pattern), *((ATTENTION, each) for each in attention)]
    named = [*of_variant, *parts.items()]
    default = "other" if pattern else ATTENTION
    return next((part for part, regex in named if regex and re.search(regex, kernel)), default)


def takes_head_dims(who: str, head_dims: Sequence[int]) -> Callable[[Device, AttentionCall], str | None]:
    """Return a `Variant.refuses` for all but these head_dims of q and k; `who` begins its sentence, with a verb."""
    *most, last = map(str, head_dims)

    def refuses(_: Device, call: AttentionCall) -> str | None:
        if call.head_dim_qk in head_dims:
            return None
        return f"{who} head_dim {', '.join(most)} and {last}, got {call.head_dim_qk}"

    return refuses


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
