"""Gluon on the CPU: what a warp-specialized kernel of Hopper does, in threads of which one runs at a time.

Each partition of a kernel is a thread. The last ones run as far ahead of the first as barriers let them. A copy into
shared memory is done when it is issued, a product of matrices only when it is waited for, and a copy out of shared
memory too: a buffer that is handed on too early has the wrong content. Shared memory begins as NaN. Where all
partitions wait, each raises `Stuck`.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

_here = threading.local()  # of a partition's thread: its program, its products and its copies in flight


class Stuck(RuntimeError):
    """A wait that nothing ends."""


class Schedule:
    """Which partition of a program runs: of those that may go on, the last."""

    def __init__(self, partitions: int) -> None:
        self.queue = list(range(partitions))[::-1]
        self.may_go_on: dict[int, Callable[[], bool]] = dict.fromkeys(self.queue, lambda: True)
        self.current: int | None = 0
        self.changed = threading.Condition()

    def start(self, me: int) -> None:
        """Wait for the first turn."""
        with self.changed:
            self.changed.wait_for(lambda: self.current in (me, None))

    def pause(self, until: Callable[[], bool] = lambda: True) -> None:
        """Let the others run, and go on when a condition holds."""
        me = _here.partition
        with self.changed:
            self.may_go_on[me] = until
            self._pass_on()
            self.changed.wait_for(lambda: self.current in (me, None))
        if self.current is None:
            raise Stuck

    def end(self, *, failed: bool) -> None:
        """Leave; where this one failed, the others do not go on either."""
        with self.changed:
            self.queue.remove(_here.partition)
            self._pass_on()
            self.current = None if failed else self.current

    def _pass_on(self) -> None:
        self.current = next((each for each in self.queue if self.may_go_on[each]()), None)
        self.changed.notify_all()


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes are there."""

    def __init__(self, count: int) -> None:
        self.count = self.pending = count
        self.missing_bytes = 0
        self.phase = 0

    def arrive(self, count: int = 0, expected_bytes: int = 0) -> None:
        """Count arrivals and bytes, which are to come (or are there, if negative)."""
        self.missing_bytes += expected_bytes
        self.pending -= count
        assert self.pending >= 0
        if self.pending == 0 and self.missing_bytes == 0:
            self.pending, self.phase = self.count, self.phase + 1
        _here.schedule.pause()

    def wait(self, parity: int) -> None:
        """Wait for the end of a phase of this parity, which the one before the first has ended."""
        if (self.phase - 1) % 2 != parity:
            _here.schedule.pause(lambda: (self.phase - 1) % 2 == parity)


class NamedBarriers:
    """The barriers of `bar.sync` and `bar.arrive`, by number."""

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        self.rounds: dict[str, int] = {}

    def run(self, instruction: str, number: str, threads: int) -> None:
        """Arrive with a warpgroup, and wait for the others where the instruction does."""
        now = self.rounds.setdefault(number, 0)
        self.arrived[number] = self.arrived.get(number, 0) + 128
        if self.arrived[number] == threads:
            self.arrived[number], self.rounds[number] = 0, now + 1
        elif instruction == "sync":
            _here.schedule.pause(lambda: self.rounds[number] > now)


class Shared:
    """A view of shared memory; `fenced` says whether the copy engine sees what was stored."""

    def __init__(self, data: Any, cells: list[Any] | None = None) -> None:
        self.data, self.cells, self.fenced = data, cells, True

    def index(self, index: int) -> Any:
        if self.cells is None:
            self.cells = [Shared(each) for each in self.data]
        return self.cells[index]

    def permute(self, order: tuple[int, int]) -> Shared:
        return Shared(self.data.permute(order))

    def load(self, layout: Any) -> Any:
        return self.data.clone()

    def store(self, values: Any) -> None:
        self.data.copy_(values)
        self.fenced = False
        _here.stored.append(self)


class Cell:
    """Where an mbarrier lies."""

    barrier: Barrier


@dataclass
class Descriptor:
    """Blocks of rows of one head of `[batch, heads, seq_len, head_dim]`."""

    tensor: Any
    rows: int

    @property
    def dtype(self) -> Any:
        return self.tensor.dtype

    @property
    def block_type(self) -> Any:
        return SimpleNamespace(nbytes=self.rows * self.tensor.shape[3] * self.tensor.element_size())


@dataclass
class Pointer:
    """Elements of flat memory."""

    memory: Any
    offset: Any = 0

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset + more)


class Product:
    """A product of matrices in flight."""

    def __init__(self, a: Any, b: Shared, acc: Any, use_acc: bool) -> None:
        self.a, self.b, self.acc, self.use_acc = a, b, acc, use_acc

    def finish(self) -> Any:
        a = self.a.data if isinstance(self.a, Shared) else self.a
        product = a.float() @ self.b.data.float()
        return product + self.acc if self.use_acc else product


def _multiply(a: Any, b: Shared, acc: Any, *, use_acc: bool = True, is_async: bool = False) -> Product:
    assert is_async
    assert not isinstance(acc, Product)
    product = Product(a, b, acc, use_acc)
    _here.products.append(product)
    return product


def _wait_for_products(outstanding: int, deps: tuple[Any, ...]) -> Any:
    done = len(_here.products) - outstanding
    finished = {id(product): product.finish() for product in _here.products[:done]}
    del _here.products[:done]
    assert all(id(each) in finished for each in deps if isinstance(each, Product))
    values = tuple(finished.get(id(each), each) for each in deps)
    return values[0] if len(values) == 1 else values


def _load(source: Descriptor, coordinates: list[int], cell: Cell, buffer: Shared) -> None:
    batch, head, row, _ = coordinates
    rows = source.tensor[batch, head, row : row + source.rows]
    buffer.data.zero_()
    buffer.data[: len(rows)] = rows
    cell.barrier.arrive(expected_bytes=-source.block_type.nbytes)


def _store(target: Descriptor, coordinates: list[int], buffer: Shared) -> None:
    assert buffer.fenced
    batch, head, row, _ = coordinates
    rows = target.tensor[batch, head, row : row + target.rows]
    _here.copies.append(lambda: rows.copy_(buffer.data[: len(rows)]))


def _wait_for_stores(pendings: int) -> None:
    while len(_here.copies) > pendings:
        _here.copies.pop(0)()


def _fence() -> None:
    while _here.stored:
        _here.stored.pop().fenced = True


def _allocate(dtype: Any, shape: list[int], layout: Any) -> Shared:
    if dtype == torch.int64:
        return Shared(None, [Cell() for _ in range(shape[0])])
    return Shared(torch.full(shape, torch.nan, dtype=dtype))


def _assemble(asm: str, constraints: str, values: list[Any], **_: Any) -> Any:
    if found := re.search(r"bar\.(sync|arrive) (\d+), (\d+)", asm):
        _here.named.run(found[1], found[2], int(found[3]))
    return values[0]


def _specialize(partitions: list[tuple[Callable[..., None], tuple[Any, ...]]], warps: Any, registers: Any) -> None:
    schedule, named, failures = Schedule(len(partitions)), NamedBarriers(), list[BaseException]()
    program, programs = _here.program, _here.programs

    def run(index: int) -> None:
        _begin(program, programs)
        _here.partition, _here.schedule, _here.named = index, schedule, named
        schedule.start(index)
        before = len(failures)
        try:
            partition, arguments = partitions[index]
            if schedule.current is not None:
                partition(*arguments)
                assert not _here.products
                assert not _here.copies
        except (Stuck, AssertionError, IndexError, RuntimeError) as error:
            failures.append(error)
        schedule.end(failed=len(failures) > before)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(partitions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _begin(program: int, programs: int) -> None:
    _here.program, _here.programs = program, programs
    _here.products, _here.copies, _here.stored = [], [], []


def _choose(condition: Any, a: Any, b: Any) -> Any:
    return torch.where(condition, a, b) if isinstance(condition, torch.Tensor) else a if condition else b


def _write(pointers: Pointer, values: Any, mask: Any = True) -> None:
    mask = torch.as_tensor(mask).expand(values.shape)
    pointers.memory[pointers.offset[mask]] = values[mask]


def _read(pointers: Pointer, cache_modifier: str) -> Any:
    return pointers.memory[pointers.offset]


def _add(pointer: Pointer, value: int, sem: str, scope: str) -> int:
    before = int(pointer.memory[pointer.offset])
    pointer.memory[pointer.offset] += value
    return before


_LAYOUTS = ("SliceLayout", "NVMMADistributedLayout", "DotOperandLayout", "BlockedLayout", "DistributedLinearLayout")
_LANGUAGE = SimpleNamespace(
    constexpr=lambda value: value,
    float32=torch.float32,
    int32=torch.int32,
    int64=torch.int64,
    **dict.fromkeys(_LAYOUTS, lambda *arguments: None),
    NVMMASharedLayout=SimpleNamespace(get_default_for=lambda *arguments: None),
    static_range=range,
    program_id=lambda axis: _here.program,
    num_programs=lambda axis: _here.programs,
    where=_choose,
    minimum=min,
    maximum=lambda a, b: torch.maximum(a, b) if isinstance(a, torch.Tensor) else max(a, b),
    cast=lambda value, dtype: value,
    arange=lambda start, end, layout: torch.arange(start, end),
    full=lambda shape, value, dtype, layout: torch.full(shape, value, dtype=dtype),
    zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
    max=lambda values, axis: values.max(axis).values,
    sum=lambda values, axis: values.sum(axis),
    reshape=lambda values, shape: values.reshape(shape),
    exp2=torch.exp2,
    log2=torch.log2,
    convert_layout=lambda values, layout: values,
    store=_write,
    load=_read,
    atomic_add=_add,
    barrier=lambda: None,
    cdiv=lambda a, b: -(-a // b),
    inline_asm_elementwise=_assemble,
    allocate_shared_memory=_allocate,
    warp_specialize=_specialize,
)
_HOPPER = SimpleNamespace(
    fence_async_shared=_fence,
    warpgroup_mma=_multiply,
    warpgroup_mma_wait=_wait_for_products,
    tma=SimpleNamespace(async_load=_load, async_store=_store, store_wait=_wait_for_stores),
    mbarrier=SimpleNamespace(
        MBarrierLayout=lambda: None,
        init=lambda cell, count: setattr(cell, "barrier", Barrier(count)),
        expect=lambda cell, nbytes: cell.barrier.arrive(1, nbytes),
        arrive=lambda cell, count: cell.barrier.arrive(count),
        wait=lambda cell, phase: cell.barrier.wait(phase),
    ),
)


def load(folder: Path, package: str, names: tuple[str, ...], written: str = "", instead: str = "") -> ModuleType:
    """Return the last of these modules of a package, in which Gluon is the one here and a text of them another."""
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
    texts = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in names}
    assert any(written in text for text in texts.values())
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
    module: ModuleType = fakes[f"{package}.{names[-1]}"]
    return module


def _undecorated(function: Any = None, **options: Any) -> Any:
    return function or _undecorated


class Launched:
    """A kernel that is launched as a compiled one is, on the CPU; its programs run one after another."""

    def __init__(self, kernel: Callable[..., None], *, backwards: bool = False) -> None:
        self.kernel, self.backwards = kernel, backwards

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        order = range(grid[0])[::-1] if self.backwards else range(grid[0])
        return lambda *arguments, num_warps, **constants: self._launch(order, arguments, constants)

    def _launch(self, order: Sequence[int], arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
        given = [_of_device(each) for each in arguments]
        for program in order:
            _begin(program, len(order))
            self.kernel(*given, **constants)


def _of_device(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return Pointer(argument.view(-1))
    if hasattr(argument, "block_shape"):
        assert argument.block_shape[:2] == [1, 1]
        offset = argument.base.storage_offset()
        return Descriptor(argument.base.as_strided(argument.shape, argument.strides, offset), argument.block_shape[2])
    return argument
