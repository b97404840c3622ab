# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "model"
# tool.fluxbench.study = "fluxbench.studies.model:LIBRARIES"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "diffusers==0.42.1", "fa3-fwd==0.0.3", "triton==3.7.1"]
# tool.fluxbench.lock = "diffusers-flash-attn-3"
# tool.fluxbench.variants = ["flash_attn_3", "flash_attn_3_blocks"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()