"""Rejax on MinAtar with a convolution in front of every network, as its own networks are for vectors."""

import by_rejax
from flax import linen as nn
from rejax import networks
from shared import MINATAR_FILTERS


class ConvolutionalMLP(nn.Module):
    """One layer of 3 x 3 windows, then the layers of rejax."""

    hidden_layer_sizes: tuple
    activation: object

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(MINATAR_FILTERS, (3, 3), padding="VALID")(x.astype("float32")))
        return PlainMLP(self.hidden_layer_sizes, self.activation)(x)


PlainMLP = networks.MLP
networks.MLP = ConvolutionalMLP
by_rejax.main()
