"""The matrix products that fill a known time: in Triton's interpreter on the CPU, and compiled for GPUs."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from compiled import compiled  # noqa: E402

from fluxbench.kernels import products  # noqa: E402

CONSTANTS = {"BLOCK": 128, "DEPTH": 16}
COUNTS = (0, 1, 5)


def test_the_sum_grows_with_every_product() -> None:
    from interpreted import printed

    none, one, five = printed(__file__)["sums"]
    assert none == 0
    assert one != 0
    assert five == pytest.approx(5 * one, rel=1e-4)


@pytest.mark.parametrize(("capability", "instruction"), [((8, 0), "mma.sync"), ((9, 0), "wgmma.mma_async")])
def test_no_compiler_takes_a_product_out_of_the_loop(capability: tuple[int, int], instruction: str) -> None:
    ptx = compiled(products._products_kernel, capability, CONSTANTS, {}, warps=4, stages=3).asm["ptx"]
    label = next(line for line in ptx.splitlines() if line.startswith("$L__BB") and "Loop Header" in line)
    loop = ptx[ptx.index(label) :]
    loop = loop[: loop.index(f"bra \t{label.split(':')[0]};")]
    assert instruction in loop


def main() -> None:
    """Print the sums of one program by the number of products."""
    from interpreted import teach_the_interpreter_rounding

    teach_the_interpreter_rounding()
    out = torch.full((len(COUNTS),), torch.nan)
    for index, count in enumerate(COUNTS):
        products._products_kernel[(1,)](out[index:], count, **CONSTANTS)
    print(json.dumps({"sums": out.tolist()}))


if __name__ == "__main__":
    main()
