"""The forms that a variant takes: as written, compiled, or with copied inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluxbench.device.model import Device
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall

if TYPE_CHECKING:
    import torch

    from fluxbench.variants._base import Variant

_MOST_GRAPHS = 1024  # of one code object: of each length and form of a process, eight forms of eight lengths say


@dataclass(frozen=True)
class Form:
    """How a variant is called, and what that adds to its name."""

    name: str
    suffix: str
    label: str  # what it adds to the name for people
    compile_mode: str | None = None  # of torch.compile; None where the form is not compiled


EAGER = Form("eager", "", "")
COPY = Form("copy", "_copy", ", with a layout copy")
COMPILE_DEFAULT = Form("compile_d", "_compile_d", ", compiled", "default")
COMPILE_MAX_AUTOTUNE = Form("compile_ma", "_compile_ma", ", max-autotune", "max-autotune")
COMPILE_BLOCKS = Form("blocks", "_blocks", ", blocks compiled", "default")  # of a model's step alone
COMPILED = (EAGER, COMPILE_DEFAULT, COMPILE_MAX_AUTOTUNE)
EVERY_FORM = (EAGER, COPY, COMPILE_DEFAULT, COMPILE_MAX_AUTOTUNE)


@dataclass(frozen=True)
class FormedVariant:
    """A variant in one of its forms: what an operation binds (`operations.protocol.Kernel`)."""

    variant: Variant
    form: Form

    @property
    def name(self) -> str:
        """Its name in records and notebooks."""
        return self.variant.name + self.form.suffix

    @property
    def compiles(self) -> bool:
        """Whether torch.compile takes part in a call."""
        return self.variant.compiles or self.form.compile_mode is not None

    @property
    def diffusers(self) -> str:
        """The backend by which diffusers calls this variant; empty where it has none."""
        return self.variant.diffusers

    @property
    def replays_graphs(self) -> bool:
        """Whether a call on a GPU replays a CUDA graph that torch.compile has made."""
        return self.form == COMPILE_MAX_AUTOTUNE

    @property
    def first_calls(self) -> int:
        """How many calls of a shape are unlike all later ones.

        Where torch.compile replays CUDA graphs the first one runs without, and the second one records (PyTorch's
        documentation, "CUDAGraph Trees").
        """
        return 2 if self.replays_graphs else 1

    @property
    def compiles_model(self) -> bool:
        """Whether this form compiles what the attention is called from."""
        return self.form.compile_mode is not None

    @property
    def compiles_blocks(self) -> bool:
        """Whether this form compiles a model's repeated blocks, each by itself."""
        return self.form == COMPILE_BLOCKS

    def supports(self, device: Device, call: AttentionCall) -> str | None:
        """Return why this form cannot run such calls on a device, or None. Needs no torch."""
        if reason := self.variant.supports(device, call):
            return reason
        if call.page_size and self.form == COPY:
            return "copies to another layout are measured of contiguous k and v alone"
        if call.retain_graph and self.replays_graphs and device.kind == "cuda":
            return "a CUDA graph keeps what its backward pass needs only until the next forward pass"
        return None

    def attention(self, call: AttentionCall) -> Attention:
        """Load the variant's attention. A compiled form compiles at its first call, in one graph where it can."""
        return self.in_form(call, self.eager(call))

    def eager(self, call: AttentionCall) -> Attention:
        """Load the variant's attention, with the copies of its form and not compiled.

        Where v may be padded and the library takes one head_dim alone, v is, and the output is cut to its channels.
        """
        given = self.variant.given(call)
        attention = self.variant.load(given)
        if given.head_dim_v > call.head_dim_v:
            attention = _padded(attention, call)
        if self.form != COPY:
            return attention

        def attend_on_copies(q: Any, k: Any, v: Any) -> Any:
            # The same values, stored as [batch, heads, seq_len, head_dim].
            return attention(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)))

        return attend_on_copies

    def in_form(self, call: AttentionCall, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Return a function of such a call compiled in the mode of this form; as it is where that is not compiled."""
        if self.form.compile_mode is None:
            return function
        import torch

        compiled = compile_for_many_lengths(
            function, mode=self.form.compile_mode, fullgraph=self.variant.fullgraph, dynamic=False
        )

        def call_compiled(*inputs: Any) -> Any:
            # With CUDA graphs, a call overwrites the output of the one before; this says that we are done with that.
            torch.compiler.cudagraph_mark_step_begin()
            return compiled(*inputs)

        return call_compiled


def compile_for_many_lengths(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return `torch.compile` of a function whose calls have many shapes, and whose graphs may be retained.

    Each shape is compiled by itself, and all share one code object. So do loads of a function for both passes and for
    the backward pass alone, which runs several times: none may write over what the forward pass kept.
    """
    import torch._dynamo.config
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False
    for limit in ("recompile_limit", "accumulated_recompile_limit"):
        setattr(torch._dynamo.config, limit, max(getattr(torch._dynamo.config, limit), _MOST_GRAPHS))
    compiled: Callable[..., Any] = torch.compile(function, **options)
    return compiled


def _padded(attention: Attention, call: AttentionCall) -> Attention:
    """Return an attention of one head_dim that takes v of fewer channels."""

    def attend_padded(q: Any, k: Any, v: Any) -> Any:
        from torch.nn.functional import pad

        return attention(q, k, pad(v, (0, call.head_dim_qk - call.head_dim_v)))[..., : call.head_dim_v]

    return attend_padded


def is_compiled(form: str) -> bool:
    """Whether torch.compile takes part in the form of this name."""
    return any(known.name == form and known.compile_mode for known in (*EVERY_FORM, COMPILE_BLOCKS))


def simplicity(form: str) -> int:
    """Return how many forms are simpler than one of this name; all are simpler than an unknown one."""
    names = [known.name for known in (*EVERY_FORM, COMPILE_BLOCKS)]
    return names.index(form) if form in names else len(names)
