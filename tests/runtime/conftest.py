import pytest
from process_group import Processes


@pytest.fixture(scope="session")
def processes():
    group = Processes(4)
    yield group
    group.close()
