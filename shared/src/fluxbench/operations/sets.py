"""Named workloads: what a notebook measures, and what `FLUXBENCH_WORKLOADS` may name."""

from __future__ import annotations

import difflib
import functools
import itertools
import re
from collections.abc import Iterable, Mapping

from fluxbench.operations import (
    decode_sets,
    grid_sets,
    language_sets,
    layer_sets,
    model_sets,
    scaling_sets,
    workload,
)
from fluxbench.operations.workload import Shape, Workload

FLUX_TEXT_TOKENS = (128, 256, 320, 384, 448, 512)
# A latent of FLUX, Qwen-Image and their kin is the image over 8, packed in patches of 2 x 2: (pixels / 16)**2 tokens.
_PIXELS_PER_TOKEN = 16
# Prompts of Qwen-Image have no fixed length, so these are ragged on purpose: not one is a multiple of 16.
QWEN_TEXT_TOKENS = (33, 77, 123, 213, 319, 511)
_CAUSAL_TOKENS = (4096, 16384)
_SHORT_TOKENS = 256  # of a CPU
_NUMBER = re.compile(r"\d{1,9}")
_FEW = 4  # names that a sentence suggests
_PASSES = {"attention": "", "attention_backward": "-backward", "attention_training": "-training"}

# Heads and head_dim of the models' published configurations: FLUX.1 24 x 128, FLUX.2 48 x 128, Qwen-Image 24 x 128,
# Wan 2.1 14B 40 x 128, Llama-3 8B 32 query heads of 128 on 8 of k and v, Llama-3.2 1B 32 of 64 on 8 (config.json of
# meta-llama/Llama-3.2-1B). Wan 14B attends over 32,760 tokens at 480p and 75,600 at 720p, 81 frames.


@functools.cache
def sets() -> Mapping[str, tuple[Workload, ...]]:
    """Return the sets by name."""
    found: dict[str, tuple[Workload, ...]] = {}
    for operation, suffix in _PASSES.items():
        for pixels in (128, 256, 512, 768, 1024, 1536, 2048):
            found[f"flux1-{pixels}px{suffix}"] = _joint("flux1", pixels, 24, FLUX_TEXT_TOKENS, operation, suffix)
        for model, head_dim in (("llama3-8b", 128), ("llama3.2-1b", 64)):
            found[f"{model}{suffix}"] = _causal(model, head_dim, _CAUSAL_TOKENS, operation, suffix)
        [short] = _causal("llama3.2-1b", 64, [_SHORT_TOKENS], operation, suffix)
        found[short.name] = (short,)
    for pixels in (512, 1024, 2048):
        tokens = (pixels // _PIXELS_PER_TOKEN) ** 2 + 512
        name = f"flux2-{pixels}px"
        one = workload("attention", f"{name}-t512", _square(tokens, 48), group="flux2", x=tokens, x_unit="tokens")
        found[name] = (one,)
    found["qwen-image-1024px"] = _joint("qwen-image", 1024, 24, QWEN_TEXT_TOKENS)
    for name, tokens in (("wan-480p", 32_760), ("wan-720p", 75_600)):
        found[name] = (workload("attention", name, _square(tokens, 40), group="wan", x=tokens, x_unit="tokens"),)
    # The guide whose figures are `assets/published` (source `speed-guide`): batch 8, 32 heads of 64.
    found["speed-guide"] = _lengths("speed-guide", {"batch": 8, "heads": 32}, (512, 1024, 2048, 4096, 8192))
    found["speed-guide-small"] = _lengths("speed-guide-small", {"batch": 2, "heads": 4}, (128, 256, 512))
    found |= layer_sets.sets() | grid_sets.sets() | scaling_sets.sets() | model_sets.sets()
    found |= language_sets.sets()
    return found | decode_sets.sets()


@functools.cache
def by_name() -> Mapping[str, Workload]:
    """Return each workload by its name, which no two share."""
    return {each.name: each for group in sets().values() for each in group}


def named(names: Iterable[str]) -> tuple[Workload, ...]:
    """Return the workloads that each name stands for: a set (`flux1-1024px`) or one workload (`wan-720p`).

    Raises `ValueError` with the nearest names where one is unknown.
    """
    found: list[Workload] = []
    for name in names:
        if name in sets():
            found.extend(sets()[name])
        elif name in by_name():
            found.append(by_name()[name])
        else:
            raise ValueError(f"workload must be a known name, got {name!r}; {_hint(name)}")
    return tuple(dict.fromkeys(found))


def _hint(name: str) -> str:
    """Return a few sets that begin with an unknown name, or else the name that it is nearest to."""
    if some := [repr(each) for each in sets() if each.startswith(name)][:_FEW]:
        return f"did you mean {' or '.join(some)}? docs/usage.md lists the sets"
    known = dict.fromkeys([*sets(), *by_name()])
    if near := difflib.get_close_matches(name, known, n=len(known)):
        return f"did you mean {min(near, key=functools.partial(_apart, name))!r}?"
    return "docs/usage.md lists the sets"


def _apart(name: str, known: str) -> tuple[float, int, int]:
    """Return how far apart two names are: in their words, then in how many numbers, then by how much."""
    words = difflib.SequenceMatcher(a=_NUMBER.sub("0", known), b=_NUMBER.sub("0", name)).ratio()
    numbers = itertools.zip_longest(_NUMBER.findall(name), _NUMBER.findall(known), fillvalue="0")
    differences = [abs(int(one) - int(other)) for one, other in numbers]
    return -words, len(differences) - differences.count(0), sum(differences)


def _lengths(name: str, sizes: Mapping[str, int], lengths: Iterable[int]) -> tuple[Workload, ...]:
    """Return attention without a mask over its tokens, heads of 64."""
    return tuple(
        workload(
            "attention", f"{name}-{tokens}", {**_square(tokens, sizes["heads"], head_dim=64), **sizes},
            group=name, x=tokens, x_unit="tokens",
        )
        for tokens in lengths
    )  # fmt: skip


def _joint(
    model: str, pixels: int, heads: int, text_tokens: Iterable[int], operation: str = "attention", suffix: str = ""
) -> tuple[Workload, ...]:
    """Return workloads over text lengths beside one image, whose tokens attend together."""
    image_tokens = (pixels // _PIXELS_PER_TOKEN) ** 2
    name = f"{model}-{pixels}px"
    return tuple(
        workload(
            operation, f"{name}-t{text}{suffix}", _square(image_tokens + text, heads),
            group=f"{name}{suffix}", x=text, x_unit="text tokens",
        )
        for text in text_tokens
    )  # fmt: skip


def _causal(model: str, head_dim: int, lengths: Iterable[int], operation: str, suffix: str) -> tuple[Workload, ...]:
    """Return workloads over the lengths of a text, of a language model with 32 query heads on 8 of k and v."""
    return tuple(
        workload(
            operation, f"{model}-{tokens}{suffix}", _square(tokens, 32, kv_heads=8, causal=True, head_dim=head_dim),
            group=f"{model}{suffix}", x=tokens, x_unit="tokens",
        )
        for tokens in lengths
    )  # fmt: skip


def _square(tokens: int, heads: int, kv_heads: int | None = None, causal: bool = False, head_dim: int = 128) -> Shape:
    """Return the shape of an attention of tokens to themselves: batch 1, bfloat16."""
    return {
        "batch": 1,
        "seq_len_q": tokens,
        "seq_len_k": tokens,
        "heads": heads,
        "kv_heads": kv_heads or heads,
        "head_dim_qk": head_dim,
        "head_dim_v": head_dim,
        "dtype": "bfloat16",
        "causal": causal,
    }
