"""The shape of an attention, and what it costs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fluxbench.operations.workload import BYTES_PER_ELEMENT, Cost, Shape


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """What a kernel is asked for: the shape of one attention, its mask, and whether it must be differentiable.

    `causal` is aligned to the end: the last query sees all keys, as in FlashAttention from version 2.1 on.
    """

    batch: int = 1
    seq_len_q: int
    seq_len_k: int
    heads: int
    kv_heads: int
    head_dim_qk: int
    head_dim_v: int
    dtype: str = "bfloat16"
    causal: bool = False
    backward: bool = False  # the output must have a gradient with respect to q, k and v
    retain_graph: bool = False  # its backward pass runs several times, and other forward passes run in between
    lengths: tuple[int, ...] = ()  # of several sequences that lie one after the other in one batch entry
    pads_values: bool = False  # a kernel of one head_dim may be given v with zeros up to that of q and k
    page_size: int = 0  # tokens of a page of k and v, which a table leads to; 0: they are contiguous

    def __post_init__(self) -> None:
        """Raise `ValueError` where a size, a dtype or a mask is not one that exists."""
        for name in ("batch", "seq_len_q", "seq_len_k", "heads", "kv_heads", "head_dim_qk", "head_dim_v"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} of an attention must be a positive integer, got {value!r}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads of an attention must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}"
            )
        if self.dtype not in BYTES_PER_ELEMENT:
            raise ValueError(f"dtype of an attention must be one of {', '.join(BYTES_PER_ELEMENT)}, got {self.dtype!r}")
        if type(self.page_size) is not int or self.page_size < 0:
            raise ValueError(f"page_size of an attention must be an integer from 0 on, got {self.page_size!r}")
        if type(self.causal) is not bool:
            raise ValueError(f"causal of an attention must be true or false, got {self.causal!r}")
        if self.causal and self.seq_len_q > self.seq_len_k:
            raise ValueError(
                f"a causal attention must have no more queries than keys, got {self.seq_len_q} and {self.seq_len_k}"
            )

    @classmethod
    def of(cls, shape: Shape, **changes: object) -> AttentionCall:
        """Return the call for an operation's shape. Raises `ValueError` where a field is missing or unknown."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(shape.keys() - known):
            raise ValueError(f"an attention has no {', '.join(unknown)}; its shape is {', '.join(sorted(known))}")
        try:
            return cls(**{**shape, **changes})  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(f"the shape of an attention is incomplete: {error}") from error

    @property
    def grouped(self) -> bool:
        """Whether several query heads share a head of k and v."""
        return self.kv_heads != self.heads

    @property
    def pages(self) -> int:
        """Pages of one sequence, of which the last may be part full; 0 where k and v are contiguous."""
        return -(-self.seq_len_k // self.page_size) if self.page_size else 0

    @property
    def pairs(self) -> int:
        """How many pairs of a query and a key have a score, in one head of one batch entry."""
        all_pairs = self.seq_len_q * self.seq_len_k
        return all_pairs - self.seq_len_q * (self.seq_len_q - 1) // 2 if self.causal else all_pairs

    def keys_seen(self, query: int) -> int:
        """Return how many keys a query sees, from the first on."""
        return query + 1 + self.seq_len_k - self.seq_len_q if self.causal else self.seq_len_k

    @property
    def forward_cost(self) -> Cost:
        """The cost of a forward pass.

        `flops` leaves the softmax out and counts half of a square causal mask: `4 * seq_len**2 * head_dim` a head (Dao,
        FlashAttention-2, 2023, section 4.1); of a mask that is not square, as many pairs as have a score, less half a
        query each.
        """
        per_pair = 2 * (self.head_dim_qk + self.head_dim_v)
        counted = self.seq_len_q * self.seq_len_k - self.causal * self.seq_len_q**2 / 2
        heads = self.batch * self.heads
        return Cost(
            flops=int(heads * counted * per_pair),
            min_flops=heads * self.pairs * per_pair,
            min_bytes=self.elements * BYTES_PER_ELEMENT[self.dtype],
        )

    @property
    def elements(self) -> int:
        """Elements of q, k, v and the output together."""
        dims = self.head_dim_qk + self.head_dim_v
        return self.batch * (self.seq_len_q * self.heads + self.seq_len_k * self.kv_heads) * dims
