"""What the installed configs/ offer: groups, their choices, and the constructors they name. Reads text, not
YAML.
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_TARGET = re.compile(r"""^[ \t]*_target_:[ \t]*(["']?)([\w.]+)\1[ \t]*(?:[ \t]#.*)?$""", re.MULTILINE)


@cache
def config_dir() -> Path:
    """The folder of the configs: inside the installed package, or beside it in a clone."""
    spec = find_spec("tfcli.configs")
    places = list(spec.submodule_search_locations or []) if spec else []
    places.append(str(Path(__file__).parents[1] / "configs"))
    return next(Path(p) for p in places if (Path(p) / "train.yaml").is_file())


def groups(*folders: Path) -> list[str]:
    """The names of the groups, sorted, in the installed configs and further folders."""
    found = {p.name for folder in (config_dir(), *folders) for p in folder.iterdir() if p.is_dir()}
    return sorted(name for name in found if not name.startswith(("_", ".")))


def choices(group: str, *folders: Path) -> list[str]:
    """The names of a group's choices, sorted; a file whose name begins with _ is a base for others, no
    choice.
    """
    files = [p for folder in (config_dir(), *folders) for p in (folder / group).glob("*.yaml")]
    return sorted({p.stem for p in files if not p.stem.startswith("_")})


def headline(group: str, choice: str, *folders: Path) -> str:
    """The first comment of a choice's file: what it is, and the paper."""
    files = (folder / group / f"{choice}.yaml" for folder in (config_dir(), *folders))
    text = next(p for p in files if p.is_file()).read_text(encoding="utf-8")
    comments = (line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return next((c for c in comments if not c.startswith("@package")), "")


def targets(*folders: Path) -> set[str]:
    """Every constructor that some YAML names, in the installed configs and further folders."""
    files = [p for folder in (config_dir(), *folders) for p in folder.rglob("*.yaml")]
    return {t for p in files for t in targets_in(p.read_text(encoding="utf-8"))}


def targets_in(text: str) -> list[str]:
    """The constructors that one YAML names."""
    return [target for _, target in _TARGET.findall(text)]


def target(group: str, choice: str) -> str:
    """The constructor that an installed choice names, itself or by the choice it is a variant of."""
    text = (config_dir() / group / f"{choice}.yaml").read_text(encoding="utf-8")
    named = targets_in(text)
    return named[0] if named else target(group, re.search(r"^defaults: *\[(\w+)", text, re.MULTILINE)[1])
