"""A small Transformer encoder (Vaswani et al., 2017), normalised before each part, over patches of a series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.series.design import Tokens, n_layers, series_architecture, series_of
from easeml_plpy.architectures.size import Size
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn

MOST_TOKENS = 256  # attention takes time and memory by their square; of a longer series a token is several steps
FEEDFORWARD = 4  # the paper's multiple of the width

N_HEADS = Hyperparameter("n_heads", "integer", 4, "the number of attention heads", low=1, high=64, search=[2, 4])
HEAD_SIZE = Hyperparameter(
    "head_size", "integer", 16, "the width of each head", low=1, high=1024, log=True, search=[8, 16, 32]
)


def _tokens(task: Task) -> Tokens:
    n_steps, n_channels = series_of(task)
    of_token = -(-n_steps // MOST_TOKENS)
    return Tokens(of_token, n_channels, -(-n_steps // of_token))


def build_transformer(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, steps) or (n, steps, channels) to (n, n_outputs)."""
    from torch import nn

    from easeml_plpy.architectures.series.modules import Transformer

    wide = config.integer("n_heads") * config.integer("head_size")
    layer = nn.TransformerEncoderLayer(
        wide, config.integer("n_heads"), FEEDFORWARD * wide, config.number("dropout"), "gelu",
        batch_first=True, norm_first=True,
    )  # fmt: skip
    encoder = nn.TransformerEncoder(
        layer, config.integer("n_layers"), norm=nn.LayerNorm(wide), enable_nested_tensor=False
    )
    return Transformer(_tokens(task), encoder, wide, task.n_outputs, is_unequal=task.objects is not None)


def transformer_size(task: Task, config: Config) -> Size:
    """Return the size of the network that the config asks for."""
    of_token, n_channels, n_tokens = _tokens(task)
    heads, deep = config.integer("n_heads"), config.integer("n_layers")
    wide = heads * config.integer("head_size")
    attention, norms = 4 * wide * (wide + 1), 4 * wide
    feedforward = 2 * FEEDFORWARD * wide**2 + (FEEDFORWARD + 1) * wide
    embedding = (of_token * n_channels + 1) * wide + n_tokens * wide
    n_parameters = deep * (attention + norms + feedforward) + embedding + 2 * wide + (wide + 1) * task.n_outputs
    of_layer = n_tokens * ((6 + 2 * FEEDFORWARD) * wide + heads * n_tokens)
    return Size(n_parameters, task.n_features + deep * of_layer + n_tokens * wide + task.n_outputs)


TRANSFORMER = series_architecture(
    "transformer",
    "small Transformer encoder over a series, of which 256 tokens at most are made",
    (n_layers(2, "the number of layers of attention"), N_HEADS, HEAD_SIZE),
    build_transformer,
    transformer_size,
)
