"""Questions to a device that are answered together: each answer would be waited for while other workers use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Question(Generic[T_co]):
    """Numbers that a device has been asked for, and what follows from them.

    `asked`: `[count]`, float64, on the device. `answer` gets these numbers.
    """

    asked: torch.Tensor
    answer: Callable[[Sequence[float]], T_co]


def known(answer: T) -> Question[T]:
    """Return a question of which the answer is known already."""
    return Question(torch.empty(0, dtype=torch.float64), lambda _: answer)


def together(questions: Sequence[Question[T]], then: Callable[[list[T]], U]) -> Question[U]:
    """Return one question for several, whose answer follows from theirs, in order."""
    asked = [each.asked for each in questions if len(each.asked)]

    def answer(numbers: Sequence[float]) -> U:
        rest = iter(numbers)
        return then([each.answer([next(rest) for _ in range(len(each.asked))]) for each in questions])

    return Question(torch.cat(asked), answer) if asked else known(answer(()))


def answers(questions: Sequence[Question[T]]) -> list[T]:
    """Return the answers in order, after one wait for the device."""
    every = together(questions, list)
    return every.answer(every.asked.tolist() if len(every.asked) else ())


def both(one: Question[T], other: Question[U]) -> tuple[T, U]:
    """Return the `answers` to two questions of different kinds."""
    asked: list[Question[Any]] = [one, other]
    first, second = answers(asked)
    return first, second
