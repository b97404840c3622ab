# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "scaling"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6"]
# tool.fluxbench.variants = ["torch_native", "torch_flash", "torch_efficient_tf32", "torch_math", "torch_math_tf32",
#     "triton_flash", "triton_flash_tf32"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()