"""Small copies of large architectures: everything that is there once, is small.

    shrink_config(config)    the same architecture, a few layers of each kind
    tiny_config(model_type)  the same, from the defaults of a type of transformers

A tiny model of 64 channels and 4 to 8 layers trains on a CPU in a tenth of a
second, and still has every kind of layer, expert, tie and mask of the large one.
"""

from planner.chain.tiny.shrinking import shrink_config, tiny_config

__all__ = ["shrink_config", "tiny_config"]
