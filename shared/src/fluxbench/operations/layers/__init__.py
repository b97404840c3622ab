"""Attention layers as torch modules, one kind a file. Workers alone import them: these files import torch at once."""
