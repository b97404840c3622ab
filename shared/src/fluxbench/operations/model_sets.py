"""Workloads of model steps: FLUX.1 over image sizes, and one block, or one of each kind, of other models.

Sizes of the models by diffusers 0.42.1 (`models/transformers`). An image has (pixels / 16)**2 tokens; Wan's video of 81
frames at 480p has 21 x 30 x 52. Text is 512 tokens.
"""

from __future__ import annotations

from fluxbench.operations import workload
from fluxbench.operations.model_shape import FLUX1, FLUX2, QWEN_IMAGE, WAN, ModelShape
from fluxbench.operations.workload import Shape, Workload

STEP = "flux1-step"  # the group of the whole model
SHARED_BY = (2, 3, 4, 5, 6, 7, 8)  # GPUs; studies take 2, 4 and 8
_PIXELS = (512, 768, 1024, 1536, 2048)
_PIXELS_PER_TOKEN = 16
_IMAGE = 1024 // _PIXELS_PER_TOKEN
_SMALL_PIXELS = (128, 256)
_FLUX1: Shape = {"model": FLUX1, "layers": 19, "single_layers": 38, "heads": 24, "text_tokens": 512, "text_dim": 4096}
_SMALL: Shape = {
    **{"model": FLUX1, "layers": 2, "single_layers": 2, "heads": 4, "head_dim": 64, "text_tokens": 64, "text_dim": 256}
}
_WAN_720P = {"height": 45, "width": 80}
_BLOCKS: dict[str, Shape] = {
    "flux2-blocks": {
        **{"model": FLUX2, "layers": 1, "single_layers": 1, "heads": 48, "height": _IMAGE, "width": _IMAGE},
        **{"text_tokens": 512, "text_dim": 15360},
    },
    "qwen-image-block": {
        **{"model": QWEN_IMAGE, "layers": 1, "heads": 24, "height": _IMAGE, "width": _IMAGE},
        **{"text_tokens": 512, "text_dim": 3584},
    },
    "wan-480p-block": {
        **{"model": WAN, "layers": 1, "heads": 40, "frames": 21, "height": 30, "width": 52},
        **{"text_tokens": 512, "text_dim": 4096},
    },
}


def shared(gpus: int, name: str, shape: Shape) -> tuple[Workload, ...]:
    """Return one step on a host of so many GPUs: on one of them, by Ulysses, by ring, and from four on by both.

    Both is ring attention of two ranks, each of which Ulysses shares among the others.
    """
    degrees = {"alone": (1, 1), "ulysses": (gpus, 1), "ring": (1, gpus)}
    if gpus >= 4 and gpus % 2 == 0:
        degrees["both"] = gpus // 2, 2
    return tuple(
        workload(
            "shared_step", f"{name}-{way}-of-{gpus}", {**shape, "ulysses": ulysses, "ring": ring, "gpus": gpus},
            group=f"{name}-of-{gpus}", x=ulysses * ring, x_unit="GPUs", ranks=ulysses * ring,
        )
        for way, (ulysses, ring) in degrees.items()
    )  # fmt: skip


def sets() -> dict[str, tuple[Workload, ...]]:
    """Return the sets by name."""
    return {
        "flux1-steps": tuple(_step(STEP, _FLUX1, pixels) for pixels in _PIXELS),
        "model-blocks": tuple(_block(name, shape) for name, shape in _BLOCKS.items()),
        "flux1-small-steps": tuple(_step("flux1-small-step", _SMALL, pixels) for pixels in _SMALL_PIXELS),
    } | {name: found for gpus in SHARED_BY for name, found in _shared_by(gpus).items()}


def _shared_by(gpus: int) -> dict[str, tuple[Workload, ...]]:
    shapes = {f"flux1-{pixels}px": _step(STEP, _FLUX1, pixels).shape for pixels in (1024, 2048)}
    for name, size in (("wan-480p", {}), ("wan-720p", _WAN_720P)):
        shapes[name] = {**_block(name, _BLOCKS["wan-480p-block"]).shape, **size}
    small = _step("flux1-small-step", _SMALL, _SMALL_PIXELS[0]).shape
    return {
        f"shared-by-{gpus}": tuple(each for name, shape in shapes.items() for each in shared(gpus, name, shape)),
        f"shared-small-by-{gpus}": shared(gpus, "flux1-small-128px", small),
    }


def _step(group: str, model: Shape, pixels: int) -> Workload:
    side = pixels // _PIXELS_PER_TOKEN
    shape = {"head_dim": 128, **model, "height": side, "width": side, "dtype": "bfloat16"}
    name = f"{group.removesuffix('-step')}-{pixels}px-step"
    return workload("model_step", name, shape, group=group, x=pixels, x_unit="px")


def _block(name: str, model: Shape) -> Workload:
    shape: Shape = {"head_dim": 128, **model, "dtype": "bfloat16"}
    tokens = ModelShape.of(shape).image_tokens
    return workload("model_step", name, shape, group=name, x=tokens, x_unit="tokens")
