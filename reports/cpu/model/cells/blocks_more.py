# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "model"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "diffusers==0.42.1"]
# tool.fluxbench.lock = "diffusers"
# tool.fluxbench.variants = ["triton_flash_blocks", "gluon_flash_blocks"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()