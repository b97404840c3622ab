"""A language model: forward, backward, and a step of its training, on random weights."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fluxbench.operations import model_step
from fluxbench.operations.language_shape import LanguageShape
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Attention, Bound, Kernel, Tensors
from fluxbench.operations.qkv import generator
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Cost, Shape

if TYPE_CHECKING:
    import torch

    from fluxbench.operations.layers.language import Language

OPTIMIZER = "optimizer"
PARTS: Mapping[str, str] = {OPTIMIZER: r"(?i)adam", **model_step.PARTS}
Run = Callable[[Tensors], Any]


class LanguageForward:
    """A forward pass to the logits of all tokens. Output: `logits`, `[batch, seq_len, vocabulary]`.

    Weights are random and the same in every process, see `models.language`; they are not among the inputs.
    """

    name = "language"
    input_kinds: tuple[str, ...] = ("normal",)
    parts = PARTS
    differentiates = True  # logits are judged as gradients are: errors of a deep model differ from token to token
    backward = False
    retains = False  # whether the backward pass runs several times after one forward pass

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a forward pass, see `LanguageShape.cost`."""
        return LanguageShape.of(shape).cost(forward=True, backward=False)

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for, in each layer."""
        return LanguageShape.of(shape).call(backward=self.backward, retain_graph=self.retains)

    def holds(self, shape: Shape) -> bool:
        """Return True: weights, and what an optimizer keeps of them, exist once in a process."""
        return True

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return random `tokens` and the `targets` that follow, `[batch, seq_len]`, int64; and the rotary `table`.

        Raises `ValueError` where the kind is unknown.
        """
        import torch

        from fluxbench.operations.layers.language import rotation

        if kind not in self.input_kinds:
            raise ValueError(f"kind of inputs must be one of {', '.join(self.input_kinds)}, got {kind!r}")
        of, rng = LanguageShape.of(shape), generator(f"{sorted(shape.items())}", kind, seed, device)
        text = torch.randint(of.vocabulary, (of.batch, of.seq_len + 1), generator=rng, device=device)
        tensors = {"tokens": text[:, :-1].contiguous(), "targets": text[:, 1:].contiguous()}
        return {**tensors, "table": rotation(of, device)} if of.rotated_dim else tensors

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Do nothing: tokens have no magnitude."""

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return the outputs of the same model on unfused attention.

        For float64 the model computes in float32, on a GPU with TF32 products, and its attention in float64, as in
        `model_step`. In the weights' dtype every step but the attention is the model's own.
        """
        import torch

        from fluxbench.operations.layers.parts import unfused
        from fluxbench.operations.models import build, language

        of, device = LanguageShape.of(shape), inputs["tokens"].device
        attend = unfused(of.call(), precision)
        if dtype != torch.float64:
            return self.outputs(language.instance(of, attend, device), inputs)
        model = language.instance(of, _in_float64(attend), device)
        build.widen(model)
        with build.tensor_float_32():
            return self.outputs(model, inputs)

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> None:
        """Return None: a token's output needs all tokens before it in every layer."""
        return None

    def outputs(self, model: Language, tensors: Tensors) -> Tensors:
        """Return the outputs of a model whose weights have no gradients."""
        return {"logits": model(model.embed(tensors["tokens"]), tensors.get("table"))}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a forward pass on the kernel's attention, with all layers compiled in a compiled form."""
        from fluxbench.operations.models import language

        of, asked = LanguageShape.of(shape), self.attention(shape)
        model = _made(lambda device: language.formed(kernel, of, asked, device))

        def call(tensors: Tensors) -> Tensors:
            embed, forward = model(tensors)
            return {"logits": forward(embed(tensors["tokens"]), tensors.get("table"))}

        return Bound(call, captured=False, idle=True)  # who trains a model launches its steps


class LanguageBackward(LanguageForward):
    """The backward pass of the mean loss, to the gradients of all weights. Output: `dx`, `[batch, seq_len, width]`.

    dx is the gradient of the embedded tokens, for which the backward pass of every layer is needed.
    """

    name = "language_backward"
    backward = True
    retains = True

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a backward pass, see `LanguageShape.cost`."""
        return LanguageShape.of(shape).cost(forward=False, backward=True)

    def outputs(self, model: Language, tensors: Tensors) -> Tensors:
        """Return the outputs of a model whose weights have no gradients."""
        import torch

        from fluxbench.operations.models import language

        with torch.enable_grad():
            x = model.embed(tensors["tokens"]).requires_grad_()
            logits = model(x, tensors.get("table"))
            [dx] = torch.autograd.grad(language.loss_of(logits, tensors["targets"]), x)
        return self.named(logits.detach(), dx)

    def named(self, logits: torch.Tensor, dx: torch.Tensor) -> Tensors:
        """Return the outputs by name."""
        return {"dx": dx}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a backward pass, whose preparation is the forward pass."""
        from fluxbench.operations.models import language

        def call(prepared: tuple[Any, ...]) -> Tensors:
            logits, *of_gradients = prepared
            return self.named(logits, language.gradients(*of_gradients, retain_graph=True)[0])

        return Bound(call, self.forward(kernel, shape), captured=False, idle=True)

    def forward(self, kernel: Kernel, shape: Shape) -> Run:
        """Return what takes the inputs of a call to logits, loss, embedded tokens and weights, for the gradients."""
        import torch

        from fluxbench.operations.models import language

        of, asked = LanguageShape.of(shape), self.attention(shape)
        model = _made(lambda device: language.formed(kernel, of, asked, device, trains=True))

        def run(tensors: Tensors) -> tuple[Any, ...]:
            embed, forward = model(tensors)
            with torch.enable_grad():
                x = embed(tensors["tokens"])
                logits = forward(x, tensors.get("table"))
                loss = language.loss_of(logits, tensors["targets"])
            return logits.detach(), loss, x, language.trained(of.weights, x.device).values()

        return run


class LanguageTraining(LanguageBackward):
    """A step of training: forward and backward pass, and AdamW's step. Outputs: `logits` and `dx`."""

    name = "language_training"
    retains = False

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of both passes and the optimizer, see `LanguageShape.cost`."""
        return LanguageShape.of(shape).cost(forward=True, backward=True, optimizer=True)

    def named(self, logits: torch.Tensor, dx: torch.Tensor) -> Tensors:
        """Return the outputs by name."""
        return {"logits": logits, "dx": dx}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a step of training."""
        from fluxbench.operations.models import language

        of, forward = LanguageShape.of(shape), self.forward(kernel, shape)

        def call(tensors: Tensors) -> Tensors:
            logits, *of_gradients = forward(tensors)
            dx, *gradients = language.gradients(*of_gradients)
            language.update(of.weights, dx.device, gradients)
            return self.named(logits, dx)

        return Bound(call, captured=False, idle=True)


def _made(make: Callable[[torch.device], Any]) -> Run:
    """Return what makes something at its first call, on the device of the inputs."""
    made: list[Any] = []

    def of(tensors: Tensors) -> Any:
        if not made:
            made.append(make(tensors["tokens"].device))
        return made[0]

    return of


def _in_float64(attend: Attention) -> Attention:
    """Return an attention that computes in float64 on q, k and v of another dtype."""
    return lambda q, k, v: attend(q.double(), k.double(), v.double()).to(q.dtype)
