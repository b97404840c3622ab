"""Quantization to float8 with a scale a head: the torch path here, the kernels in Triton's interpreter and compiled."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from fluxbench.kernels import float8 as kernel  # noqa: E402

# batch, seq_len, heads, head_dim, share: whole and ragged blocks, a head_dim that is no power of two, shared scales.
CASES = [(1, 64, 2, 64, 1), (2, 130, 4, 128, 1), (1, 77, 3, 96, 1), (2, 70, 4, 64, 2), (1, 70, 4, 64, 4)]
# Half a unit in the last place of a 4-bit significand, and beneath 2**-6 half of the subnormals' step 2**-9.
RELATIVE, ABSOLUTE = 2**-4, 2**-10


def made(case: tuple[int, ...], dtype: Any = torch.float16) -> Any:
    """Return inputs whose heads differ a thousandfold, one of them zero."""
    batch, seq_len, heads, head_dim, _ = case
    x = torch.randn(batch, seq_len, heads, head_dim, generator=torch.Generator().manual_seed(0))
    x *= 1000.0 ** -torch.arange(heads)[:, None]
    x[0, :, -1] = 0
    return x.to(dtype)


def problems(case: tuple[int, ...], device: str = "cpu") -> list[str]:
    """Return what is wrong with the quantization of one case."""
    batch, _, heads, _, share = case
    x = made(case).to(device)
    x8, descale = kernel.quantize_per_head(x, share)
    found = []
    if (x8.dtype, x8.shape, x8.is_contiguous()) != (torch.float8_e4m3fn, x.shape, True):
        found.append(f"x8 is {x8.dtype} {list(x8.shape)}")
    if (descale.dtype, list(descale.shape)) != (torch.float32, [batch, heads // share]):
        found.append(f"descale is {descale.dtype} {list(descale.shape)}")
    amax = x.float().abs().amax(dim=(1, 3)).unflatten(1, (-1, share)).amax(2)
    some = amax > 0
    if not torch.allclose(descale[some], amax[some] / 448, rtol=1e-6, atol=0):
        found.append("descale is not the largest magnitude over 448")
    if not (torch.isfinite(descale).all() and (descale > 0).all()):
        found.append("descale is not finite and over 0")
    scale = descale.repeat_interleave(share, 1)[:, None, :, None]
    if share == heads and batch == 1:
        back = kernel.dequantize(x8, descale, torch.float16)  # to bfloat16 the interpreter cuts off
        if not torch.equal(back, (x8.float() * scale).to(torch.float16)):
            found.append("what is cast back is not x8 times descale, rounded once")
    error = (x8.float() * scale - x.float()).abs()
    if not (error <= 1.001 * torch.maximum(RELATIVE * x.float().abs(), ABSOLUTE * scale)).all():
        found.append("x8 is not the nearest float8")
    return found


def teach_the_interpreter_float8() -> None:
    """Make the interpreter (3.7) round to float8 as a GPU does: by itself it drops a carry into the exponent."""
    from triton import language as tl
    from triton.runtime import interpreter

    by_itself = interpreter.InterpreterBuilder.create_fp_to_fp

    def cast(self: Any, x: Any, to: Any, rounding: Any) -> Any:
        if (x.dtype.scalar, to.scalar) != (tl.float32, tl.float8e4nv):
            return by_itself(self, x, to, rounding)
        nearest = torch.from_numpy(x.data).to(torch.float8_e4m3fn).view(torch.uint8)
        return interpreter.TensorHandle(nearest.numpy(), tl.float8e4nv)

    interpreter.InterpreterBuilder.create_fp_to_fp = cast


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
@pytest.mark.parametrize("case", [*CASES, (1, 4608, 24, 128, 1)], ids=str)
def test_the_kernels_on_the_gpu_do_too(case: tuple[int, ...]) -> None:
    assert problems(case, "cuda") == []


@pytest.mark.parametrize(
    ("x", "share", "message"),
    [
        (torch.zeros(8, 2, 64).half(), 1, r"x must be \[batch, .* got \[8, 2, 64\]; reshape"),
        (torch.zeros(1, 0, 2, 64).half(), 1, "no empty dimension"),
        (torch.zeros(1, 8, 2, 64), 1, "x must be bfloat16 or float16, got torch.float32; cast"),
        (torch.zeros(1, 2, 8, 64).half().transpose(1, 2), 1, "x must be contiguous, got strides"),
        (torch.zeros(1, 8, 4, 64).half(), 3, "share must divide the heads of x, 4, got 3; pass"),
    ],
)
def test_wrong_input_is_refused_with_the_rule_and_the_value(x: Any, share: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel.quantize_per_head(x, share)


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0)])
def test_the_kernels_compile_for_devices_that_have_float8(capability: tuple[int, int]) -> None:
    sizes = {"HEADS": 24, "HEAD_DIM": 128, "ROWS": 64, "D": 128}
    more = {"SHARE": 1, "LARGEST": kernel.FLOAT8_MAX, "LEAST_AMAX": 2.0**-100, "CHUNK": 128}
    pointers = {"x_pointer": "*bf16", "x8_pointer": "*fp8e4nv", "amax_pointer": "*fp32", "descale_pointer": "*fp32"}
    target = triton.backends.compiler.GPUTarget("cuda", capability[0] * 10 + capability[1], 32)
    for function, constants in (
        (kernel.quantize_per_head_amax_kernel, sizes),
        (kernel.quantize_per_head_cast_kernel, {**sizes, **more}),
    ):
        names = function.arg_names
        source = triton.compiler.ASTSource(
            fn=function,
            signature={name: pointers.get(name, "constexpr" if name in constants else "i32") for name in names},
            constexprs={(names.index(name),): value for name, value in constants.items()},
            attrs={(names.index(name),): [["tt.divisibility", 16]] for name in names if name in pointers},
        )
        text = triton.compile(source, target=target).asm["ptx"]
        assert "ld.global.v4" in text  # 16 bytes a thread and load


if __name__ == "__main__":
    teach_the_interpreter_float8()
    print(json.dumps({str(case): problems(case) for case in CASES}))
