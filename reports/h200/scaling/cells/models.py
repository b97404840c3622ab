# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "scaling"
# tool.fluxbench.study = "fluxbench.studies.scaling:MODELS"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6"]
# tool.fluxbench.variants = ["torch_native", "torch_flash", "torch_cudnn", "torch_math", "triton_flash"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()