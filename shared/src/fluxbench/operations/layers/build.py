"""A layer's shape and an attention -> a function of the layer's input and weights."""

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.func import functional_call

from fluxbench.operations import layer_shape
from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.layers.fused import Fused
from fluxbench.operations.layers.grouped import Grouped
from fluxbench.operations.layers.latent import Latent
from fluxbench.operations.layers.latent_rotary import LatentRotary
from fluxbench.operations.layers.multi_query import MultiQuery
from fluxbench.operations.layers.separate import Separate
from fluxbench.operations.protocol import Attention

MODULES: Mapping[str, Callable[[LayerShape, Attention], nn.Module]] = {
    layer_shape.FUSED: Fused,
    layer_shape.SEPARATE: Separate,
    layer_shape.GROUPED: Grouped,
    layer_shape.MULTI_QUERY: MultiQuery,
    layer_shape.LATENT: Latent,
    layer_shape.LATENT_ROTARY: LatentRotary,
}
Forward = Callable[[Mapping[str, torch.Tensor], torch.Tensor, torch.Tensor | None], torch.Tensor]


def build(layer: LayerShape, attention: Attention) -> Forward:
    """Return `forward(weights, x, table)`: weights by the names of `LayerShape.weights`, the rotary table or None."""
    with torch.device("meta"):  # its own weights are never used
        module = MODULES[layer.kind](layer, attention)

    def forward(
        weights: Mapping[str, torch.Tensor], x: torch.Tensor, table: torch.Tensor | None = None
    ) -> torch.Tensor:
        parameters = {f"{name}.weight": weight for name, weight in weights.items()}
        y: torch.Tensor = functional_call(module, parameters, (x,) if table is None else (x, table))
        return y

    return forward
