"""What kernels do, by their names on a GPU and by those of torch's operators on a CPU."""

# A compiler's kernel is named after all that it fused, so it is a copy only where it does nothing else.
COPIES = (
    r"(?i)^(?!triton_).*(memcpy|copy|clone|transpose|permute|contiguous|CatArray|constant_pad)|^aten::(cat|stack)$"
    r"|^triton_poi_fused(_+(cat|clone|copy|to_copy|permute|transpose|view|unsqueeze|split|slice|select|expand))+[_\d]*$"
)
