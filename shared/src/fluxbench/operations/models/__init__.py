"""diffusers' models with random weights. Workers alone import them: these files import torch at once."""
