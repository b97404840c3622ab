"""The launch that quantizes for the 8-bit kernel: in Triton's interpreter, compiled, and on a GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from quantized import quantized  # noqa: E402

from fluxbench.kernels import gluon_int8_fp8_quantize as kernel  # noqa: E402

# batch, seq_len_q, seq_len_k, heads, kv_heads, head_dim, block_n
CASES = [
    (1, 64, 64, 2, 2, 64, 64),
    (2, 130, 130, 2, 2, 128, 128),  # ragged blocks
    (2, 200, 70, 4, 2, 64, 64),  # more queries than keys
    (2, 1, 330, 6, 2, 64, 64),  # fewer
    (1, 77, 1, 3, 1, 64, 64),
    (2, 70, 200, 4, 2, 128, 64),
]


def made(case: tuple[Any, ...]) -> list[Any]:
    """Return q, k and v: views of longer tensors of NaN; their heads differ, the first tenfold, one of them zero."""
    batch, seq_len_q, seq_len_k, heads, kv_heads, head_dim, _ = case
    generator = torch.Generator().manual_seed(0)
    tensors = []
    for seq_len, count in ((seq_len_q, heads), (seq_len_k, kv_heads), (seq_len_k, kv_heads)):
        x = torch.randn(batch, seq_len, count, head_dim, generator=generator)
        x *= 10.0 ** -torch.arange(count).clamp(max=2)[:, None]
        x[0, :, -1] = 0
        wide = torch.full((batch, seq_len + 3, count + 1, head_dim), torch.nan, dtype=torch.float16)
        wide[:, :seq_len, :count] = x.half()
        tensors.append(wide[:, :seq_len, :count])
    return tensors


def problems(case: tuple[Any, ...], device: str = "cpu") -> list[str]:
    """Return what is wrong with the quantization of one case."""
    block_n = case[6]
    q, k, v = (x.to(device) for x in made(case))
    got = kernel.quantize(q, k, v, scale=0.25, block_n=block_n)
    right = quantized(q, k, v, scale=0.25, block_n=block_n)
    found = []
    for name, one, other in zip(right._fields, got, right, strict=True):
        if (one.dtype, one.shape, one.is_contiguous()) != (other.dtype, other.shape, True):
            found.append(f"{name} is {one.dtype} {list(one.shape)}")
        elif name in "qkv":
            # Where x / scale is halfway between two, the nearest depends on how it is computed.
            step = 1 if one.dtype == torch.int8 else (other.float().abs() / 8).clamp_min(2**-6)
            apart = (one.float() - other.float()).abs()
            if not (apart <= 1.001 * step).all() or (apart > 0).float().mean() > 1e-3:
                found.append(f"{name} is not the nearest")
        elif not torch.allclose(one, other, rtol=1e-5, atol=1e-5):
            found.append(f"{name} are not the scales")
    return found


@pytest.fixture(scope="module")
def interpreted() -> dict[str, list[str]]:
    from interpreted import printed

    return printed(__file__)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_interpreted_kernel_rounds_to_the_nearest(case: tuple[Any, ...], interpreted: dict[str, list[str]]) -> None:
    assert interpreted[str(case)] == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", [*CASES, (1, 4608, 4608, 24, 24, 128, 128)], ids=str)
def test_the_kernel_on_the_gpu_does_too(case: tuple[Any, ...]) -> None:
    assert problems(case, "cuda") == []


if __name__ == "__main__":
    from interpreted import teach_the_interpreter_float8

    teach_the_interpreter_float8()
    print(json.dumps({str(case): problems(case) for case in CASES}))
