"""Gluon on the CPU: what a warp-specialized kernel of Hopper does, its partitions as `partitions.py` runs them.

A copy into shared memory is done when it is issued. A product of matrices is done only when it is waited for, and so
is the load of its left operand; a copy out of shared memory too. So a buffer that is handed on too early has the wrong
content. Shared memory begins as NaN.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from emulated_memory import Cell, Descriptor, Pointer, Shared
from partitions import Barrier, begin, here, specialize


class Product:
    """A product of matrices in flight."""

    def __init__(self, a: Any, b: Shared, acc: Any, use_acc: bool) -> None:
        self.a, self.b, self.acc, self.use_acc = a, b, acc, use_acc
        self.result: Any = None

    def finish(self) -> Any:
        a = self.a.data if isinstance(self.a, Shared) else self.a
        if hasattr(a, "loaded_from"):  # a load into registers is done when a product needs it
            a.copy_(a.loaded_from)
            del a.loaded_from
        acc = self.acc.result if isinstance(self.acc, Product) else self.acc
        product = (a.float() @ self.b.data.float()).to(acc.dtype)
        self.result = product + acc if self.use_acc else product
        return self.result


def _multiply(a: Any, b: Shared, acc: Any, *, use_acc: bool = True, is_async: bool = False) -> Product:
    assert is_async
    assert not isinstance(acc, Product) or any(acc is each for each in here.products)
    assert not any(operand.unfenced for operand in (a, b) if isinstance(operand, Shared))
    product = Product(a, b, acc, use_acc)
    here.products.append(product)
    return product


def _wait_for_products(outstanding: int, deps: tuple[Any, ...]) -> Any:
    done = len(here.products) - outstanding
    finished = {id(product): product.finish() for product in here.products[:done]}
    del here.products[:done]
    assert all(id(each) in finished for each in deps if isinstance(each, Product))
    values = tuple(finished.get(id(each), each) for each in deps)
    return values[0] if len(values) == 1 else values


def _load(source: Descriptor, coordinates: list[int], cell: Cell, buffer: Shared) -> None:
    block = source.block(coordinates)
    whole = buffer.data.view(source.rows, source.columns)
    whole.zero_()
    whole[: block.shape[0], : block.shape[1]] = block
    cell.barrier.arrive(expected_bytes=-source.block_type.nbytes)


def _store(target: Descriptor, coordinates: list[int], buffer: Shared) -> None:
    assert not buffer.unfenced
    rows = target.block(coordinates)
    here.copies.append(lambda: rows.copy_(buffer.data[: len(rows)]))


def _add_block(target: Descriptor, coordinates: list[int], buffer: Shared) -> None:
    assert not buffer.unfenced
    rows = target.block(coordinates)
    assert len(rows) == target.rows
    here.copies.append(lambda: rows.add_(buffer.data))


def _wait_for_stores(pendings: int) -> None:
    while len(here.copies) > pendings:
        here.copies.pop(0)()


def _fence() -> None:
    while here.stored:
        here.stored.pop().unfenced.pop()


def _allocate(dtype: Any, shape: list[int], layout: Any) -> Shared:
    if dtype == torch.int64:
        return Shared(None, [Cell() for _ in range(shape[0])])
    return Shared(torch.full(shape, torch.nan if dtype.is_floating_point else -128, dtype=dtype))


def _assemble(asm: str, constraints: str, values: list[Any], *, pack: int = 1, **_: Any) -> Any:
    if found := re.search(r"(?<!@never )bar\.(sync|arrive) \$?(\d+), (\d+)", asm):
        number = found[2]
        if f"${number}" in found[0]:
            number = str(int(values[(int(number) - constraints.count("=")) // pack].flatten()[0]))
        here.named.run(found[1], number, int(found[3]), values[0].numel() // pack)
    if "vote.sync" in asm:  # what a warp that jumps over it multiplies by is 1
        return values[0] * values[1]
    if found := re.search(r"cvt\.rn\.(b?f16)x2\.f32 \$0, \$2, \$1;", asm):  # the first operand is the upper half
        dtype = torch.bfloat16 if found[1] == "bf16" else torch.float16
        return torch.stack(values, -1).to(dtype).view(torch.int32)[..., 0]
    if "fma.rn.sat" in asm:
        a, b, c = values
        return (a.double() * b + c).float().nan_to_num(0.0).clamp(0, 1)
    if "0x5410" in asm:  # the lower halves of two
        return (values[0] & 0xFFFF) | (values[1] << 16)
    return values[0]


def _choose(condition: Any, a: Any, b: Any) -> Any:
    return torch.where(condition, a, b) if isinstance(condition, torch.Tensor) else a if condition else b


def _write(pointers: Pointer, values: Any, mask: Any = True) -> None:
    mask = torch.as_tensor(mask).expand(values.shape)
    pointers.memory[pointers.offset[mask]] = values[mask]


def _read(pointers: Pointer, mask: Any = True, other: float = 0.0, cache_modifier: str = "") -> Any:
    offset = torch.as_tensor(pointers.offset)
    mask = torch.as_tensor(mask).expand(offset.shape)
    return torch.where(mask, pointers.memory[offset.where(mask, 0)], other)


def _cast(value: Any, dtype: Any, *, bitcast: bool = False) -> Any:
    return value.view(dtype) if bitcast else value.to(dtype) if isinstance(value, torch.Tensor) else value


def _add(pointer: Pointer, value: Any, sem: str, scope: str) -> Any:
    before = pointer.memory[pointer.offset].clone()
    pointer.memory[pointer.offset] = before + value
    return before if isinstance(value, torch.Tensor) else int(before)


class _SharedLayout:
    def __init__(self, **arguments: int) -> None: ...

    @staticmethod
    def get_default_for(shape: list[int], dtype: Any) -> None: ...


_LAYOUTS = ("SliceLayout", "NVMMADistributedLayout", "DotOperandLayout", "BlockedLayout", "DistributedLinearLayout")
_LANGUAGE = SimpleNamespace(
    constexpr=lambda value: value,
    bfloat16=torch.bfloat16,
    float32=torch.float32,
    float8e4nv=torch.float8_e4m3fn,
    int8=torch.int8,
    int16=torch.int16,
    int32=torch.int32,
    int64=torch.int64,
    **dict.fromkeys(_LAYOUTS, lambda *arguments: None),
    NVMMASharedLayout=_SharedLayout,
    static_range=range,
    program_id=lambda axis: here.program,
    num_programs=lambda axis: here.programs,
    where=_choose,
    minimum=min,
    maximum=lambda a, b: torch.maximum(a, b) if isinstance(a, torch.Tensor) else max(a, b),
    cast=_cast,
    arange=lambda start, end, layout: torch.arange(start, end),
    full=lambda shape, value, dtype, layout: torch.full(shape, value, dtype=dtype),
    zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
    zeros_like=torch.zeros_like,
    max=lambda values, axis: values.max(axis).values,
    sum=lambda values, axis: values.sum(axis),
    reshape=lambda values, shape: values.reshape(shape),
    permute=lambda values, order: values.permute(order),
    split=lambda values: values.unbind(-1),
    join=lambda a, b: torch.stack((a, b), -1),
    exp2=torch.exp2,
    log2=torch.log2,
    convert_layout=lambda values, layout, assert_trivial=False: values,
    store=_write,
    load=_read,
    atomic_add=_add,
    barrier=lambda: None,
    cdiv=lambda a, b: -(-a // b),
    inline_asm_elementwise=_assemble,
    allocate_shared_memory=_allocate,
    warp_specialize=specialize,
)
_HOPPER = SimpleNamespace(
    fence_async_shared=_fence,
    warpgroup_mma=_multiply,
    warpgroup_mma_wait=_wait_for_products,
    tma=SimpleNamespace(async_load=_load, async_store=_store, async_atomic_add=_add_block, store_wait=_wait_for_stores),
    mbarrier=SimpleNamespace(
        MBarrierLayout=lambda: None,
        init=lambda cell, count: setattr(cell, "barrier", Barrier(count)),
        expect=lambda cell, nbytes: cell.barrier.arrive(1, nbytes),
        arrive=lambda cell, count: cell.barrier.arrive(count),
        wait=lambda cell, phase: cell.barrier.wait(phase),
    ),
)


def load(
    folder: Path, package: str, names: tuple[str, ...], written: str = "", instead: str = ""
) -> dict[str, ModuleType]:
    """Return these modules of a package, by name, in which Gluon is the one here and a text of them another."""
    texts = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in names}
    assert any(written in text for text in texts.values()), written
    above, gluon = "triton.experimental", SimpleNamespace(jit=_undecorated, language=_LANGUAGE)
    fakes: dict[str, Any] = {
        above: SimpleNamespace(gluon=gluon),
        f"{above}.gluon": gluon,
        f"{above}.gluon.language": _LANGUAGE,
        f"{above}.gluon.language.nvidia.hopper": _HOPPER,
        **{f"{package}.{name}": ModuleType(name) for name in names},
    }
    before = {key: sys.modules.get(key) for key in fakes}
    sys.modules.update(fakes)
    try:
        for name, text in texts.items():
            changed = text.replace(written, instead) if written else text
            exec(compile(changed, f"{name}.py", "exec"), vars(fakes[f"{package}.{name}"]))
    finally:
        for key, known in before.items():
            if known is None:
                del sys.modules[key]
            else:
                sys.modules[key] = known
    return {name: fakes[f"{package}.{name}"] for name in names}


def _undecorated(function: Any = None, **options: Any) -> Any:
    return function or _undecorated


class Launched:
    """A kernel that is launched as a compiled one is, on the CPU; its programs run one after another."""

    def __init__(self, kernel: Callable[..., None], *, backwards: bool = False, greedy: bool = False) -> None:
        self.kernel, self.backwards, self.greedy = kernel, backwards, greedy

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        order = range(grid[0])[::-1] if self.backwards else range(grid[0])
        return lambda *arguments, num_warps, **constants: self._launch(order, arguments, constants)

    def _launch(self, order: Sequence[int], arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
        given = [_of_device(each) for each in arguments]
        for program in order:
            begin(program, len(order), greedy=self.greedy)
            self.kernel(*given, **constants)


def _of_device(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        offset = argument.storage_offset()
        elements = argument.untyped_storage().nbytes() // argument.element_size() - offset
        return Pointer(argument.as_strided((elements,), (1,), offset))
    if hasattr(argument, "block_shape"):
        *ones, rows, columns = argument.block_shape
        assert set(ones) <= {1}
        offset = argument.base.storage_offset()
        return Descriptor(argument.base.as_strided(argument.shape, argument.strides, offset), rows, columns)
    return argument
