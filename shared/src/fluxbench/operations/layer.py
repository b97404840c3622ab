"""A whole attention layer, forward: x and weights -> y."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fluxbench.operations.kernel_names import COPIES
from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.qkv import generator
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Cost, Shape

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.layers.build import Forward

WEIGHT, GRADIENT, TABLE = "w_", "dw_", "table"  # what names of inputs and outputs begin with; the rotary table
PROJECTIONS = "projections"  # the part
_OF_WEIGHTS = 0  # the seed of all weights: contents of one shape share them
# By names of kernels on a GPU, and of torch's operators on a CPU. Projections are products of 16-bit operands; those of
# unfused attention are in float32.
PARTS: Mapping[str, str] = {
    "copies": COPIES,
    PROJECTIONS: r"(?i)nvjet_(sm\d+_)?(?!s)|bf16|f16|16816|hgemm|splitK|triton_tem_fused.*mm"
    r"|^aten::(mm|addmm|linear)$",
    "elementwise": r"(?i)elementwise|reduce_kernel|layer_?norm|rms_?norm|triton_(poi|red|per)_|^aten::(mul|add|sub)_?$",
    "other": r"Memset|FillFunctor",
}


class Layer:
    """One attention layer with its projections. Output: `y`, `[batch, seq_len, width]`, contiguous.

    Weights are normal noise over the square root of their inputs, so that q, k and v have variance 1; those of norms
    are 1 plus noise of a tenth. The seed does not change them.
    """

    name = "layer"
    input_kinds: tuple[str, ...] = ("normal",)
    parts = PARTS
    differentiates = False
    retains = False  # whether the backward pass runs several times after one forward pass

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a forward pass, see `LayerShape.cost`."""
        return LayerShape.of(shape).cost(forward=True, backward=False)

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for."""
        return LayerShape.of(shape).call(backward=self.differentiates, retain_graph=self.retains)

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return `x`, `[batch, seq_len, width]`, the weights as `w_<name>`, and `table` where channels are rotated.

        Raises `ValueError` where the kind is unknown.
        """
        import torch

        from fluxbench.operations.layers.parts import rotary_table

        if kind not in self.input_kinds:
            raise ValueError(f"kind of inputs must be one of {', '.join(self.input_kinds)}, got {kind!r}")
        layer, name = LayerShape.of(shape), f"{sorted(shape.items())}"
        dtype, rng = getattr(torch, layer.dtype), generator(name, kind, seed, device)
        of_weights = generator(name, "weights", _OF_WEIGHTS, device)
        x = torch.randn(layer.batch, layer.seq_len, layer.width, generator=rng, device=device).to(dtype)
        tensors = {"x": x}
        for weight, of in layer.weights.items():
            noise = torch.randn(of, generator=of_weights, device=device)
            noise = noise.mul_(of[1] ** -0.5) if len(of) == 2 else noise.mul_(0.1).add_(1.0)
            tensors[WEIGHT + weight] = noise.to(dtype)
        if layer.rotated_dim:
            tensors[TABLE] = rotary_table(layer.seq_len, layer.rotated_dim, device)
        return tensors

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Do nothing: no factor of x leaves the softmax as it is."""

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return the same layer on unfused attention, in a dtype."""
        forward, tensors = self.unfused(shape, inputs, dtype, precision)
        return {"y": forward(*split(tensors))}

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> None:
        """Return None: a row of y needs k and v of every token."""
        return None

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a call of the layer on the kernel's attention, compiled whole in a compiled form."""
        forward = self.forward(kernel, shape)
        return Bound(lambda tensors: {"y": forward(*split(tensors))})

    def forward(self, kernel: Kernel, shape: Shape) -> Forward:
        """Return the layer's forward pass on the kernel's attention, in the kernel's form."""
        from fluxbench.operations.layers.build import build

        call = self.attention(shape)
        return kernel.in_form(call, build(LayerShape.of(shape), kernel.eager(call)))

    def unfused(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str) -> tuple[Forward, Tensors]:
        """Return the layer on unfused attention, and its inputs in a dtype.

        Every step but the attention is torch's own in that dtype, so it rounds its output to it, as in a layer that is
        measured.
        """
        from fluxbench.operations.layers.build import build
        from fluxbench.operations.layers.parts import unfused

        layer = LayerShape.of(shape)
        tensors = {name: x if name == TABLE else x.to(dtype) for name, x in inputs.items()}
        return build(layer, unfused(layer.call(), precision)), tensors


def split(tensors: Tensors) -> tuple[Tensors, torch.Tensor, torch.Tensor | None]:
    """Return what a forward pass takes of the inputs: the weights by their own names, x, and the rotary table."""
    weights = {name.removeprefix(WEIGHT): x for name, x in tensors.items() if name.startswith(WEIGHT)}
    return weights, tensors["x"], tensors.get(TABLE)
