"""Quantization to float8 with a scale a head: the torch path here, the kernels in Triton's interpreter and compiled."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from fluxbench.kernels import float8 as kernel  # noqa: E402

# batch, seq_len_q, seq_len_k, heads, kv_heads, head_dim, groups.
CASES = [
    (1, 64, 64, 2, 2, 64, 2),
    (2, 130, 130, 2, 2, 128, 2),  # ragged blocks
    (1, 77, 77, 3, 3, 96, 3),  # a head_dim that is no power of two
    (2, 70, 70, 4, 2, 64, 2),  # grouped heads
    (2, 200, 70, 4, 2, 64, 2),  # more queries than keys
    (2, 1, 130, 6, 2, 64, 2),  # fewer, and no block that is whole
    (1, 70, 70, 4, 4, 64, 1),  # one scale a batch entry
    (1, 1100, 64, 8, 2, 16, 1),  # and more blocks than are read at once
]
# Half a unit in the last place of a 4-bit significand, and beneath 2**-6 half of the subnormals' step 2**-9.
RELATIVE, ABSOLUTE = 2**-4, 2**-10


def made(case: tuple[int, ...], dtype: Any = torch.float16) -> list[Any]:
    """Return q, k and v whose heads differ, the first thousandfold, one of them zero."""
    batch, seq_len_q, seq_len_k, heads, kv_heads, head_dim, _ = case
    generator = torch.Generator().manual_seed(0)
    tensors = []
    for seq_len, count in ((seq_len_q, heads), (seq_len_k, kv_heads), (seq_len_k, kv_heads)):
        x = torch.randn(batch, seq_len, count, head_dim, generator=generator)
        x *= 1000.0 ** -torch.arange(count).clamp(max=2)[:, None]
        x[0, :, -1] = 0
        tensors.append(x.to(dtype))
    return tensors


def problems(case: tuple[int, ...], device: str = "cpu") -> list[str]:
    """Return what is wrong with the quantization of one case."""
    groups = case[-1]
    tensors = [x.to(device) for x in made(case)]
    quantized, descales = kernel.quantize_per_head(*tensors, groups=groups)
    return [
        f"{name}: {problem}"
        for name, x, x8, descale in zip("qkv", tensors, quantized, descales, strict=True)
        for problem in problems_of_one(x, x8, descale, groups)
    ]


def problems_of_one(x: Any, x8: Any, descale: Any, groups: int) -> list[str]:
    """Return what is wrong with the quantization of one of the tensors."""
    batch, _, heads, _ = x.shape
    share = heads // groups
    found = []
    if (x8.dtype, x8.shape, x8.is_contiguous()) != (torch.float8_e4m3fn, x.shape, True):
        found.append(f"x8 is {x8.dtype} {list(x8.shape)}")
    if (descale.dtype, list(descale.shape)) != (torch.float32, [batch, groups]):
        found.append(f"descale is {descale.dtype} {list(descale.shape)}")
    if not descale.is_contiguous() or descale.data_ptr() % 16:
        found.append("descale is not contiguous from 16 bytes on")
    amax = x.float().abs().amax(dim=(1, 3)).unflatten(1, (groups, -1)).amax(2)
    some = amax > 0
    if not torch.allclose(descale[some], amax[some] / 448, rtol=1e-6, atol=0):
        found.append("descale is not the largest magnitude over 448")
    if not (torch.isfinite(descale).all() and (descale > 0).all()):
        found.append("descale is not finite and over 0")
    scale = descale.repeat_interleave(share, 1)[:, None, :, None]
    if groups == batch == 1:
        back = kernel.dequantize(x8, descale, torch.float16)  # to bfloat16 the interpreter cuts off
        if not torch.equal(back, (x8.float() * scale).to(torch.float16)):
            found.append("what is cast back is not x8 times descale, rounded once")
    error = (x8.float() * scale - x.float()).abs()
    if not (error <= 1.001 * torch.maximum(RELATIVE * x.float().abs(), ABSOLUTE * scale)).all():
        found.append("x8 is not the nearest float8")
    return found


@pytest.fixture(scope="module")
def interpreted() -> dict[str, list[str]]:
    from interpreted import printed

    return printed(__file__)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch_rounds_to_the_nearest_float8_of_each_head(case: tuple[int, ...]) -> None:
    assert problems(case) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_interpreted_kernels_do_too(case: tuple[int, ...], interpreted: dict[str, list[str]]) -> None:
    assert interpreted[str(case)] == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", [*CASES, (1, 4608, 4608, 24, 24, 128, 24), (2, 4608, 512, 24, 8, 128, 8)], ids=str)
def test_the_kernels_on_the_gpu_do_too(case: tuple[int, ...]) -> None:
    assert problems(case, "cuda") == []


GOOD = torch.zeros(1, 8, 4, 64).half()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": GOOD[0]}, r"q must be \[batch, .* got \[8, 4, 64\]; reshape"),
        ({"k": GOOD[:, :0]}, r"k must be .* no empty dimension, got \[1, 0, 4, 64\]"),
        ({"v": GOOD.float()}, "v must be bfloat16 or float16, got torch.float32; cast"),
        ({"k": GOOD.bfloat16()}, "k must be torch.float16 on cpu like q, got torch.bfloat16 on cpu; convert"),
        ({"v": GOOD.to("meta")}, "v must be torch.float16 on cpu like q, got torch.float16 on meta; convert"),
        ({"q": torch.zeros(1, 4, 8, 64).half().transpose(1, 2)}, "q must be contiguous, got strides"),
        ({"groups": 3}, "groups must divide the heads of q, 4, got 3; pass"),
        ({"groups": 0}, "groups must divide the heads of q, 4, got 0; pass"),
        ({"k": GOOD[:, :, :2].contiguous()}, "groups must divide the heads of k, 2, got 4; pass"),
        ({"k": GOOD.repeat(2, 1, 1, 1)}, r"k must have the batch and head_dim of q, .* got \[2, 8, 4, 64\]; reshape"),
        ({"k": GOOD[..., :32].contiguous()}, r"k must have the batch and head_dim .* got \[1, 8, 4, 32\]; reshape"),
        ({"v": GOOD[:, :7]}, r"v must have the shape of k, \[1, 8, 4, 64\], got \[1, 7, 4, 64\]; reshape"),
    ],
)
def test_wrong_input_is_refused_with_the_rule_and_the_value(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel.quantize_per_head(**{"q": GOOD, "k": GOOD, "v": GOOD, "groups": 4, **changed})


if __name__ == "__main__":
    from interpreted import teach_the_interpreter_float8

    teach_the_interpreter_float8()
    print(json.dumps({str(case): problems(case) for case in CASES}))
