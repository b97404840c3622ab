# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "model"
# tool.fluxbench.study = "fluxbench.studies.model:LIBRARIES_AT_1024"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "diffusers==0.42.1", "xformers==0.0.35"]
# tool.fluxbench.lock = "diffusers-xformers"
# tool.fluxbench.variants = ["xformers", "xformers_blocks"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()