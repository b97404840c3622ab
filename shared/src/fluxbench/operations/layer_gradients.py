"""The gradients of a whole attention layer, of its input and of all weights: alone, and with the forward pass."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fluxbench.operations.layer import GRADIENT, Layer, split
from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.qkv import generator
from fluxbench.operations.workload import Cost, Shape

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.layers.build import Forward

_MOST_DOUBLINGS = 4  # of y's gradient


class LayerBackward(Layer):
    """The backward pass alone, by autograd. Outputs, contiguous: `dx`, `[batch, seq_len, width]`, and `dw_<name>`.

    The gradient of a weight is `[1, out, in]`, of a norm's `[1, 1, channels]`: a batch entry whose tokens are the rows.
    """

    name = "layer_backward"
    differentiates = True
    retains = True
    part_of: str | None = "layer_training"
    lacks = ("y",)

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a backward pass, see `LayerShape.cost`."""
        return LayerShape.of(shape).cost(forward=False, backward=True)

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return the inputs of a layer, and `dy`, `[batch, seq_len, width]`, normal noise."""
        import torch

        tensors = super().inputs(shape, kind, seed, device)
        rng = generator(f"dy {sorted(shape.items())}", kind, seed, device)
        x = tensors["x"]
        return tensors | {"dy": torch.randn(x.shape, generator=rng, device=x.device).to(x.dtype)}

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Multiply y's gradient, of which all others are multiples, by a power of two."""
        inputs["dy"].mul_(2.0 ** rng.randint(0, _MOST_DOUBLINGS))

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return the gradients of the same layer on unfused attention, in a dtype.

        Of inputs of 16 bits, the float64 gradients of weights are returned in float32, whose rounding is 2**15 times
        smaller than theirs: they are most of what a worker holds on the device.
        """
        import torch

        forward, tensors = self.unfused(shape, inputs, dtype, precision)
        outputs = self.outputs(*_forward(forward, tensors), tensors["dy"])
        if dtype == torch.float64 and inputs["x"].element_size() == 2:
            outputs = {name: x.float() if name.startswith(GRADIENT) else x for name, x in outputs.items()}
        return outputs

    def outputs(self, y: torch.Tensor, leaves: Tensors, dy: torch.Tensor) -> Tensors:
        """Return what a call returns, from y and its gradient."""
        import torch

        found = torch.autograd.grad(y, tuple(leaves.values()), dy, retain_graph=self.retains, allow_unused=True)
        if any(gradient is None for gradient in found):
            raise NotImplementedError("its output has no gradient with respect to q, k and v")
        of_x, *others = found
        of_weights = {
            GRADIENT + name: gradient.reshape(1, -1, gradient.shape[-1]).contiguous()
            for name, gradient in zip(list(leaves)[1:], others, strict=True)
        }
        return {"dx": of_x.contiguous(), **of_weights}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a backward pass, whose preparation is the forward pass."""
        forward = self.forward(kernel, shape)

        def prepare(tensors: Tensors) -> tuple[Any, ...]:
            return (*_forward(forward, tensors), tensors["dy"])

        return Bound(lambda prepared: self.outputs(*prepared), prepare)


class LayerTraining(LayerBackward):
    """Forward and backward pass in one call. Outputs: `y`, and those of the backward pass."""

    name = "layer_training"
    retains = False
    part_of = None

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of both passes, see `LayerShape.cost`."""
        return LayerShape.of(shape).cost(forward=True, backward=True)

    def outputs(self, y: torch.Tensor, leaves: Tensors, dy: torch.Tensor) -> Tensors:
        """Return y and the gradients."""
        return {"y": y.detach(), **super().outputs(y, leaves, dy)}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return both passes, as a training step calls them."""
        forward = self.forward(kernel, shape)
        return Bound(lambda tensors: self.outputs(*_forward(forward, tensors), tensors["dy"]))


def _forward(forward: Forward, tensors: Tensors) -> tuple[torch.Tensor, Tensors]:
    """Return y, and the tensors that it can be differentiated by: x, and the weights by their names."""
    import torch

    weights, x, table = split(tensors)
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in {"x": x, **weights}.items()}
    with torch.enable_grad():
        y = forward({name: leaves[name] for name in weights}, leaves["x"], table)
    return y, leaves
