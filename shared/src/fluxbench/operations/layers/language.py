"""A whole language model: tokens to the logits of the next ones."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from fluxbench.operations.language_shape import GPT2, GPT_J, GPT_NEOX, LLAMA, POSITIONS, LanguageShape
from fluxbench.operations.layers.gpt2 import Gpt2
from fluxbench.operations.layers.llama import Llama
from fluxbench.operations.layers.parallel import Parallel
from fluxbench.operations.layers.parts import rotary_table
from fluxbench.operations.protocol import Attention

LAYERS: Mapping[str, Callable[[LanguageShape, Attention], nn.Module]] = {
    GPT2: Gpt2,
    GPT_J: Parallel,
    GPT_NEOX: Parallel,
    LLAMA: Llama,
}


class Language(nn.Module):  # type: ignore[misc]
    """tokens `[batch, seq_len]`, int64 -> x `[batch, seq_len, width]` -> logits `[batch, seq_len, vocabulary]`."""

    def __init__(self, shape: LanguageShape, attention: Attention) -> None:
        super().__init__()
        self.embedding = _embedding(shape.vocabulary, shape.width)
        self.positions = _embedding(POSITIONS, shape.width) if shape.family == GPT2 else None
        self.layers = nn.ModuleList(LAYERS[shape.family](shape, attention) for _ in range(shape.layers))
        norm = nn.RMSNorm if shape.family == LLAMA else nn.LayerNorm
        self.norm = norm(shape.width, eps=1e-5, **({} if shape.family == LLAMA else {"bias": False}))
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the embedded tokens x."""
        x: torch.Tensor = self.embedding(tokens)
        return x if self.positions is None else x + self.positions(torch.arange(tokens.shape[1], device=x.device))

    def forward(self, x: torch.Tensor, table: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits; `table` is of `rotation`."""
        for layer in self.layers:
            x = layer(x, table)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def _embedding(count: int, width: int) -> nn.Embedding:
    """Return an embedding without values: to draw some on the meta device torch imports its compiler, for seconds."""
    return nn.Embedding.from_pretrained(torch.empty(count, width), freeze=False)


def rotation(shape: LanguageShape, device: torch.device | str) -> torch.Tensor:
    """Return the rotary table of a model, `[seq_len, head_dim / 2, 2]`, float32; angle 0 of channels that stay."""
    table = rotary_table(shape.seq_len, shape.rotated_dim, device)
    still = shape.head_dim // 2 - table.shape[1]
    rest = torch.tensor([1.0, 0.0], device=device).expand(shape.seq_len, still, 2)  # cosine and sine
    return torch.cat((table, rest), dim=1)
