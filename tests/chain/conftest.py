import pytest
from architectures import ARCHITECTURES
from model_folders import save_model

from planner.chain.layers import find_chain
from planner.chain.source import ModelSource, quiet_transformers


@pytest.fixture(scope="package")
def chains():
    """The chain of every architecture."""
    return {
        name: find_chain(ModelSource(id=name, config=config), attention="auto")
        for name, config in ARCHITECTURES.items()
    }


@pytest.fixture(scope="package", autouse=True)
def quiet():
    with quiet_transformers():
        yield


@pytest.fixture(scope="package")
def folders(tmp_path_factory):
    """A folder with weights for every architecture, made when it is first read."""
    return Folders(tmp_path_factory.mktemp("architectures"))


class Folders:
    def __init__(self, root):
        self._root = root

    def __getitem__(self, name):
        folder = self._root / name
        return folder if folder.exists() else save_model(ARCHITECTURES[name], folder)
