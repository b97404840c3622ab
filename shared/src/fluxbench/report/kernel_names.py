"""Kernels' names as a reader can take them in."""

from __future__ import annotations

import re

_LONGEST = 80  # characters of a kernel's name
# Template arguments that say what a kernel does whose own name does not, the most telling first.
_TELLING = (r"\w*(?:Attn|[Aa]ttention|fmha|FMHA)\w*", r"direct_copy\w*|Copy", r"\w+Functor", r"[A-Za-z]\w{3,}")
_GENERIC = re.compile(r"(device_kernel|Kernel\d?|\w*elementwise_kernel|multi_tensor_apply_kernel|reduce_kernel)$")
_TELLS_NOTHING = re.compile(r"enable_\w+|gpu_kernel_impl\w*|TensorListMetadata|at|native|cutlass|flash|void|false|true")


def short_name(name: str) -> str:
    """Return a kernel's name without return type, arguments and template arguments, cut where it is still too long.

    Of a general kernel whose template arguments say what it does, the most telling one of these is kept.

    >>> short_name("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<128> > >(Params)")
    'cutlass::device_kernel<FlashAttnFwdSm90>'
    """
    text = name.replace("(anonymous namespace)::", "").removeprefix("void ").removeprefix("at::native::")
    if text.startswith(("Memcpy", "Memset")):  # the profiler's own: "Memset (Device)"
        return text
    cut = min((place for sign in "<(" if (place := text.find(sign)) > 0), default=len(text))
    plain = text[:cut]
    if _GENERIC.search(plain) and cut < len(text) and (telling := _telling(text[cut:])):
        plain = f"{plain}<{telling}>"
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"


def _telling(arguments: str) -> str | None:
    words = [word for word in re.findall(r"[A-Za-z_]\w*", arguments) if not _TELLS_NOTHING.fullmatch(word)]
    return next((word for pattern in _TELLING for word in words if re.fullmatch(pattern, word)), None)
