import pytest
from architectures import ARCHITECTURES

from planner.chain.layers import find_chain
from planner.chain.source import ModelSource


@pytest.fixture(scope="package")
def chains():
    """The chain of every architecture."""
    return {
        name: find_chain(ModelSource(id=name, config=config), attention="auto")
        for name, config in ARCHITECTURES.items()
    }
