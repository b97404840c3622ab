"""What an operation is: the thing that is measured, as data and a few functions.

An operation says what a call costs, makes its inputs, knows the right answer, and binds a kernel to a call. Everything
after it (checking, timing, recording, ranking, drawing) is the same for all operations. Modules of operations import
torch inside functions alone: the processes that have no torch ask them for shapes and costs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fluxbench.device.model import Device
from fluxbench.operations.precision import EXACT
from fluxbench.operations.workload import Cost, Shape

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.shapes import AttentionCall

Tensors = dict[str, "torch.Tensor"]
# attention(q, k, v) -> out; q [batch, seq_len_q, heads, head_dim_qk], k [batch, seq_len_k, kv_heads, head_dim_qk],
# v [batch, seq_len_k, kv_heads, head_dim_v], out [batch, seq_len_q, heads, head_dim_v]; of one dtype. They
# are contiguous, but for one check in which the strides of k, v and the output's gradient differ from those of q: a
# kernel reads strides or raises. Of a cache in pages it is attention(q, k, v, table), see `decode.Decode`.
Attention = Callable[..., "torch.Tensor"]


class Kernel(Protocol):
    """What a variant offers to an operation."""

    @property
    def compiles(self) -> bool:
        """Whether torch.compile takes part in a call."""

    @property
    def compiles_model(self) -> bool:
        """Whether this form compiles what the attention is called from."""

    @property
    def compiles_blocks(self) -> bool:
        """Whether this form compiles a model's repeated blocks, each by itself."""

    @property
    def diffusers(self) -> str:
        """The backend by which diffusers calls this variant; empty where it has none."""

    def attention(self, call: AttentionCall) -> Attention:
        """Return the attention of this variant, in its form, for such calls."""

    def eager(self, call: AttentionCall) -> Attention:
        """Return the attention of this variant, not compiled, for an operation that calls it among other steps."""

    def in_form(self, call: AttentionCall, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Return a function of these steps in the form of this variant: compiled whole, or as it is."""


@dataclass(frozen=True)
class Bound:
    """A kernel bound to an operation.

    `call` is timed. It gets what `prepare` returned for the inputs, or the inputs where there is no `prepare`, which
    is not timed. What `prepare` returned may be used for several calls. `call` returns the outputs by name.
    """

    call: Callable[[Any], Mapping[str, object]]
    prepare: Callable[[Tensors], Any] | None = None
    captured: bool = True  # sustained calls are a CUDA graph where they can be
    idle: bool = False  # of more launches than a device's queue holds: each call begins on an idle device
    # Of a call that several processes share: profiles the others in a context, which yields a list that it then fills
    # with what the communication of each took a call, in ms.
    others: Callable[[torch.device], AbstractContextManager[list[float]]] | None = None

    @property
    def can_be_captured(self) -> bool:
        """Whether several calls may be one CUDA graph."""
        return self.captured and self.prepare is None

    def prepared(self, inputs: Tensors) -> Any:
        """Return what `call` takes for these inputs."""
        return self.prepare(inputs) if self.prepare else inputs

    def __call__(self, inputs: Tensors) -> Mapping[str, object]:
        """Return the outputs for these inputs, preparation included."""
        return self.call(self.prepared(inputs))


class Operation(Protocol):
    """What is measured. `parts` maps what a call's time is split into to a pattern of kernel names (`re.search`).

    A kernel belongs to the first part whose pattern its name matches; "quantization" and "attention" come before these
    and are the variant's own patterns, see `variants.part_of`.

    An operation may name another in `part_of`: at the same shape the other's inputs are its own, and so are the other's
    outputs but those that it `lacks`. Both are then measured in the same processes, where they share references too.

    One that `is_deep` has many layers, so that errors differ from token to token and between contents: outputs may err
    as gradients may.
    """

    name: str
    input_kinds: tuple[str, ...]  # each is checked; the first is timed
    parts: Mapping[str, str]
    differentiates: bool  # whether autograd takes part in a call

    def cost(self, shape: Shape) -> Cost:
        """Return operations and bytes of a call. Raises `ValueError` where the operation has no such shape."""

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for. Raises `ValueError` as `cost` does."""

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return the inputs of a call: the same for the same arguments on the same kind of device."""

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Multiply inputs by random powers of two, in place, such that outputs lose no precision by it.

        So what a kernel kept of the magnitudes of others is wrong. Nothing, where no such factors are known.
        """

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return the outputs by plain torch operations computed in a dtype.

        In float64 this is the answer. In the inputs' own dtype it is unfused and rounds all that a kernel of the
        precision class may (`precision.CLASSES`), so its error against the answer is what this precision costs.
        Outputs have the dtype, and the names, shapes and layout that a call must return, at least `[batch, tokens]`.
        """

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> Tensors | None:
        """Return rows of the float64 reference, in a small part of its time; None where all of it would be needed.

        `positions` holds tokens by output, `[count]`, int64; a row is `reference(...)[output].index_select(1, ...)`.
        """

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a call of this operation by a kernel."""


@runtime_checkable
class KnowsSymmetries(Protocol):
    """An operation of which other inputs with their outputs follow exactly from those that are known."""

    def varied(
        self, shape: Shape, inputs: Tensors, outputs: Tensors, positions: Tensors, rng: random.Random
    ) -> tuple[Tensors, Tensors]:
        """Return other inputs, and rows of their float64 reference as `reference_at` has them.

        `outputs` are the whole reference of `inputs`; whole is what is returned of one without `positions`.
        """

    def varied_scales(self, shape: Shape, scales: Tensors, positions: Tensors, rng: random.Random) -> Tensors:
        """Return scales of rows (`KnowsErrorScales`) of what `varied` returns for an equal `rng`, from those of all.

        `scales` are of the outputs that it gets; of one without `positions` those of all rows are returned.
        """


@runtime_checkable
class Refuses(Protocol):
    """An operation that not every device of a kind can do."""

    def refuses(self, shape: Shape, device: Device) -> str | None:
        """Return why a device cannot do it at a shape, whatever the variant, or None."""


@runtime_checkable
class KnowsRows(Protocol):
    """An operation that knows rows of its reference apart from the whole, for calls that are too long for that."""

    def tokens_of_outputs(self, shape: Shape) -> dict[str, int]:
        """Return how many tokens each output has."""

    def reference_rows(
        self, shape: Shape, inputs: Tensors, positions: Tensors, dtype: torch.dtype, precision: str = EXACT
    ) -> Tensors:
        """Return `reference(...)[output].index_select(1, positions[output])` by output, without all of it.

        `positions` holds tokens of every output, `[count]`, int64.
        """


@runtime_checkable
class KnowsErrorScales(Protocol):
    """An operation that knows how large errors of rows are, one relative to another."""

    def error_scales(
        self, shape: Shape, inputs: Tensors, outputs: Collection[str], positions: Tensors | None = None
    ) -> Tensors:
        """Return the scale of each row of some outputs, `[batch, tokens, heads]`, see `operations.error_scales`.

        `positions` holds tokens by output, `[count]`, int64: the rows that are wanted; None: all.
        """
