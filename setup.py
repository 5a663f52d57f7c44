"""The packages, and configs/ as one more: beside tfcli/ for people, inside it for the installed commands."""

from pathlib import Path

from setuptools import find_packages, setup

groups = [f"tfcli.configs.{path.name}" for path in sorted(Path("configs").iterdir()) if path.is_dir()]

setup(
    packages=[*find_packages(include=["tfcli", "tfcli.*"]), "tfcli.configs", *groups],
    package_dir={"tfcli.configs": "configs"},
    package_data={"": ["*.yaml"]},
)
