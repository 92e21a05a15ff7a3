"""Which versions of the packages that matter are installed."""

from importlib.metadata import PackageNotFoundError, version


def installed_versions() -> dict[str, str]:
    """Versions as an artifact records them; imports none of the packages.

    Returns:
        Package name to version; packages that are not installed are left out.
    """
    found = {}
    for name in ("planner", "torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
