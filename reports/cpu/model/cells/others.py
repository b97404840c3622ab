# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "model"
# tool.fluxbench.study = "fluxbench.studies.model:AT_1024"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "diffusers==0.42.1"]
# tool.fluxbench.lock = "diffusers"
# tool.fluxbench.variants = ["torch_native_compile_d", "flex_blocks", "torch_efficient", "torch_efficient_blocks",
#     "torch_math", "flex_eager", "sage_int8_fp16_triton"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()