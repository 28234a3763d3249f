"""The initial values of the encoder's linear layers."""

from torch import nn


def xavier_linear(in_features: int, out_features: int) -> nn.Linear:
    """Return a linear layer with Xavier-uniform weight and zero bias, as the layers of the encoder start."""
    linear = nn.Linear(in_features, out_features)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
