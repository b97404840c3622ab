"""Memory of Gluon on the CPU: shared memory, where an mbarrier lies, and what a kernel is given of global memory."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from partitions import Barrier, here


class Shared:
    """A view of shared memory; `unfenced` has the stores that copies and products do not see yet."""

    def __init__(self, data: Any, cells: list[Any] | None = None, unfenced: list[None] | None = None) -> None:
        self.data, self.cells = data, cells
        self.unfenced = list[None]() if unfenced is None else unfenced

    def index(self, index: int) -> Any:
        if self.cells is None:
            self.cells = [Shared(each) for each in self.data]
        return self.cells[index]

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    def permute(self, order: tuple[int, int]) -> Shared:
        return Shared(self.data.permute(order), unfenced=self.unfenced)

    def slice(self, start: int, length: int, dim: int) -> Shared:
        return Shared(self.data.narrow(dim, start, length), unfenced=self.unfenced)

    def load(self, layout: Any) -> Any:
        loaded = self.data.clone()
        loaded.loaded_from = self.data
        return loaded

    def store(self, values: Any) -> None:
        self.data.copy_(values)
        self.unfenced.append(None)
        here.stored.append(self)


class Cell:
    """Where an mbarrier lies."""

    barrier: Barrier


@dataclass
class Descriptor:
    """Blocks of rows and columns of one head of `[batch, heads, rows, columns]`, or of a matrix."""

    tensor: Any
    rows: int
    columns: int

    @property
    def dtype(self) -> Any:
        return self.tensor.dtype

    @property
    def block_type(self) -> Any:
        return SimpleNamespace(nbytes=self.rows * self.columns * self.tensor.element_size())

    def block(self, coordinates: list[int]) -> Any:
        *head, row, column = coordinates
        return self.tensor[tuple(head)][row : row + self.rows, column : column + self.columns]


@dataclass
class Pointer:
    """Elements of flat memory."""

    memory: Any
    offset: Any = 0

    @property
    def dtype(self) -> Any:
        return SimpleNamespace(element_ty=self.memory.dtype)

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset + more)

    def __sub__(self, less: Any) -> Pointer:
        return Pointer(self.memory, self.offset - less)
