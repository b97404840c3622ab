# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "certificate"
# tool.fluxbench.measures = "trials"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6"]
# tool.fluxbench.variants = ["torch_flash", "torch_cudnn", "torch_cudnn_compile_d", "triton_flash"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()