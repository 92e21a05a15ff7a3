"""Modules of a user's own, for the tests; every factory is one that could be."""

import torch
from torch import nn
from torch.nn import functional

WIDTH = 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, hidden):
        return hidden + self.down(functional.gelu(self.up(self.norm(hidden))))


class Images(nn.Module):
    """Four layers called in turn, on images that shrink on the way."""

    def __init__(self):
        super().__init__()
        self.layer1 = nn.Conv2d(3, 8, 3, padding=1)
        self.layer2 = nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.layer3 = nn.Conv2d(16, 16, 3, padding=1)
        self.layer4 = nn.Linear(16, 10)
        self.relu = nn.ReLU()
        self.register_buffer("mean", torch.full((3, 1, 1), 0.5))

    def forward(self, images):
        hidden = self.relu(self.layer1(images - self.mean))
        hidden = self.relu(self.layer2(hidden))
        hidden = hidden + self.relu(self.layer3(hidden))
        return self.layer4(hidden.mean((2, 3)))

    def sample_inputs(self):
        images, labels = torch.randn(8, 3, 8, 8), torch.randint(0, 10, (8,))
        return {"images": images, "labels": labels}

    def loss(self, output, labels):
        return functional.cross_entropy(output, labels)


class Regression(nn.Module):
    """A list of layers, and a parameter that belongs to none of them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x * self.scale

    def sample_inputs(self):
        return {"x": torch.randn(6, 4)}

    def loss(self, output):
        return (output - 1).square().mean()


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.left, self.right = Block(), Block()
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, ids):
        hidden = self.embed(ids)
        return self.head(self.left(hidden) + self.right(hidden))


class Skip(Parallel):
    def forward(self, ids):
        hidden = self.embed(ids)
        return self.head(hidden + self.right(self.left(hidden)))


class NoLoss(Images):
    loss = None


class BadRows(Images):
    def sample_inputs(self):
        return {"images": torch.zeros(2, 3, 8, 8), "labels": torch.zeros(3)}


def tokens():
    blocks = [Block() for _ in range(3)]
    return nn.Sequential(nn.Embedding(256, WIDTH), *blocks, nn.Linear(WIDTH, 256))


class Soft(nn.Module):
    """Looks tokens up by likeness, in a table that others use, too."""

    def __init__(self, table):
        super().__init__()
        self.weight = table

    def forward(self, hidden):
        likeness = functional.linear(hidden, self.weight).softmax(-1)
        return hidden + likeness @ self.weight


def thrice():
    """One parameter in three layers."""
    embed = nn.Embedding(256, WIDTH)
    head = nn.Linear(WIDTH, 256, bias=False)
    head.weight = embed.weight
    return nn.Sequential(embed, Block(), Soft(embed.weight), head)


def wrapped():
    """One child that holds all the others."""
    whole = nn.Module()
    whole.body = tokens()
    whole.forward = lambda ids: whole.body(ids)
    return whole


def fails():
    msg = "no luck"
    raise RuntimeError(msg)


def number():
    return 3


def floats_only():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def frozen():
    return nn.Flatten()
