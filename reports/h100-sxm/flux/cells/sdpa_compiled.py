# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "flux"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6"]
# tool.fluxbench.variants = ["torch_flash_compile_d", "torch_cudnn_compile_d", "torch_efficient_compile_d",
#     "torch_math_compile_d", "torch_native_compile_d", "torch_flash_compile_ma", "torch_cudnn_compile_ma",
#     "torch_efficient_compile_ma", "torch_math_compile_ma", "torch_native_compile_ma"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()