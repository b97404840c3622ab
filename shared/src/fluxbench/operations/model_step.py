"""One step of a diffusion transformer of diffusers: noise, text and time -> the model's output."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fluxbench.operations.kernel_names import COPIES
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.qkv import generator
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Cost, Shape

if TYPE_CHECKING:
    import torch

PRODUCTS = "products"  # the part: matrix products
# By names of kernels on a GPU, and of torch's operators on a CPU. FLUX.1 rotates in float32 and does nothing else in
# it. The first part that fits counts.
PARTS: Mapping[str, str] = {
    PRODUCTS: r"(?i)nvjet_(sm\d+_)?(?!s)|gemm|gemv|16816|splitK|triton_tem_fused.*mm|implicit_conv"
    r"|^aten::(mm|addmm|bmm|linear)$|mkldnn::_linear",
    "rotary": r"(MulFunctor|CUDAFunctor_add)<float>|neg_kernel|triton_.*(stack|neg|unbind)|^aten::neg$",
    "norms": r"(?i)layer_?norm|rms_?norm|triton_.*(norm|rsqrt|var_mean)|^aten::(rsqrt|mean|pow)$",
    "copies": COPIES,
    "rest": r".",  # activations, modulation and sums, what multiplies one vector for all tokens
}


class ModelStep:
    """A forward pass of diffusers' own model, batch 1. Output: `out`, `[1, image_tokens, channels]`, contiguous.

    Weights are random and the same in every process, see `models.build`; they are not among the inputs.
    """

    name = "model_step"
    input_kinds: tuple[str, ...] = ("normal",)
    parts = PARTS
    differentiates = False
    is_deep = True

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a step, see `ModelShape.cost`."""
        return ModelShape.of(shape).cost()

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for."""
        return ModelShape.of(shape).call()

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return the tensors that the model takes, by its own names of arguments: noise, and what no seed changes.

        Raises `ValueError` where the kind is unknown.
        """
        from fluxbench.operations.models import build

        if kind not in self.input_kinds:
            raise ValueError(f"kind of inputs must be one of {', '.join(self.input_kinds)}, got {kind!r}")
        return build.inputs(ModelShape.of(shape), generator(f"{sorted(shape.items())}", kind, seed, device))

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Do nothing: the first norm of each block takes magnitudes away."""

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return the output of the same model on unfused attention.

        For float64 the model computes in float32, on a GPU with TF32 products, and its attention in float64. In the
        inputs' dtype every step but the attention is the model's own.
        """
        import torch

        from fluxbench.operations import math_attention
        from fluxbench.operations.models import build, dispatch

        of, device = ModelShape.of(shape), inputs["hidden_states"].device
        model = build.instance(of, device)
        own = inputs["hidden_states"].dtype
        wide = dtype == torch.float64

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            call = of.between(q.shape[1], k.shape[1])
            out = math_attention.forward(call, {"q": q, "k": k, "v": v}, torch.float64 if wide else dtype, precision)
            return out.to(q.dtype)

        dispatch.use_registered(model, attend)
        if not wide:
            return {"out": build.run(model, inputs, build.settings(of))}
        build.widen(model)
        with build.tensor_float_32():
            tensors = {name: x.float() if x.dtype == own else x for name, x in inputs.items()}
            return {"out": build.run(model, tensors, build.settings(of))}

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> None:
        """Return None: a token's output needs all tokens of every block."""
        return None

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a step on the kernel's attention, with the model compiled in the kernel's form.

        The model is made at the first call, on the device of its inputs.
        """
        from fluxbench.operations.models.step import step

        of = ModelShape.of(shape)
        made: list[Callable[[Tensors], torch.Tensor]] = []

        def call(tensors: Tensors) -> Tensors:
            if not made:
                made.append(step(kernel, of, tensors["hidden_states"].device))
            return {"out": made[0](tensors)}

        return Bound(call, idle=True)
