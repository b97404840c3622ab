"""Named attention workloads: their shapes, and what they cost in floating-point operations and bytes.

Every tensor of a workload is in diffusers' layout `[batch, seq_len, heads, head_dim]`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

BYTES_PER_ELEMENT = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One attention call: its shape, its precision and its direction.

    `seq_len` is `image_tokens + text_tokens`, the joint sequence that a diffusion transformer attends over.
    """

    name: str
    seq_len: int
    heads: int
    text_tokens: int = 0
    batch: int = 1
    kv_heads: int | None = None
    head_dim: int = 128
    dtype: str = "bfloat16"
    causal: bool = False
    direction: str = "forward"

    def __post_init__(self) -> None:
        """Raise `ValueError` where a size or a word is not one that exists."""
        if self.kv_heads is None:
            object.__setattr__(self, "kv_heads", self.heads)
        for field in ("batch", "seq_len", "heads", "kv_heads", "head_dim"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field} of workload {self.name!r} must be a positive integer, got {value!r}")
        if self.heads % (self.kv_heads or 1):
            raise ValueError(
                f"heads of workload {self.name!r} must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}"
            )
        if self.dtype not in BYTES_PER_ELEMENT:
            raise ValueError(
                f"dtype of workload {self.name!r} must be one of {', '.join(BYTES_PER_ELEMENT)}, got {self.dtype!r}"
            )
        if self.direction not in ("forward", "backward", "forward_backward"):
            raise ValueError(
                f"direction of workload {self.name!r} must be forward, backward or forward_backward, "
                f"got {self.direction!r}"
            )

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products, `4 * batch * heads * seq_len**2 * head_dim`.

        Half of it where causal, and 2.5 times as much for a backward pass: the count of FlashAttention-2
        (Dao, 2023, section 4.1), which leaves the softmax out.
        """
        forward = 4 * self.batch * self.heads * self.seq_len**2 * self.head_dim
        if self.causal:
            forward //= 2
        return {"forward": forward, "backward": forward * 5 // 2, "forward_backward": forward * 7 // 2}[self.direction]

    @property
    def min_bytes(self) -> int:
        """Fewest bytes a forward pass can move: q, k, v read once and the output written once."""
        assert self.kv_heads is not None
        elements = 2 * self.batch * self.seq_len * (self.heads + self.kv_heads) * self.head_dim
        return elements * BYTES_PER_ELEMENT[self.dtype]


FLUX_TEXT_TOKENS = (128, 256, 320, 384, 448, 512)
# A latent of FLUX, Qwen-Image and their kin is the image over 8, packed in patches of 2 x 2: (pixels / 16)**2 tokens.
_PIXELS_PER_TOKEN = 16
# Prompts of Qwen-Image have no fixed length, so these are ragged on purpose: not one is a multiple of 16.
QWEN_TEXT_TOKENS = (33, 77, 123, 213, 319, 511)


def _joint(model: str, pixels: int, heads: int, text_tokens: tuple[int, ...]) -> tuple[Workload, ...]:
    image_tokens = (pixels // _PIXELS_PER_TOKEN) ** 2
    return tuple(
        Workload(name=f"{model}-{pixels}px-t{text}", seq_len=image_tokens + text, text_tokens=text, heads=heads)
        for text in text_tokens
    )


# Heads and head_dim: FLUX.1 24 x 128, FLUX.2 48 x 128, Qwen-Image 24 x 128, Wan 2.1 14B 40 x 128 (the models'
# published transformer configurations). Wan 14B attends over 32,760 tokens at 480p and 75,600 at 720p, 81 frames.
SETS: dict[str, tuple[Workload, ...]] = {
    **{f"flux1-{pixels}px": _joint("flux1", pixels, 24, FLUX_TEXT_TOKENS) for pixels in (512, 768, 1024, 1536, 2048)},
    **{f"flux2-{pixels}px": _joint("flux2", pixels, 48, (512,)) for pixels in (512, 1024, 2048)},
    "qwen-image-1024px": _joint("qwen-image", 1024, 24, QWEN_TEXT_TOKENS),
    "wan-480p": (Workload(name="wan-480p", seq_len=32_760, heads=40),),
    "wan-720p": (Workload(name="wan-720p", seq_len=75_600, heads=40),),
}
BY_NAME = {workload.name: workload for group in SETS.values() for workload in group}


def named(*names: str) -> tuple[Workload, ...]:
    """Return the workloads that each name stands for: a set (`flux1-1024px`) or one workload (`wan-720p`).

    Raises `KeyError` with the nearest name where one is unknown.
    """
    found: list[Workload] = []
    for name in names:
        if name in SETS:
            found.extend(SETS[name])
        elif name in BY_NAME:
            found.append(BY_NAME[name])
        else:
            known = [*SETS, *BY_NAME]
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the sets are {', '.join(SETS)}"
            raise KeyError(f"workload must be a known name, got {name!r}; {hint}")
    return tuple(dict.fromkeys(found))
