"""Recipes by their names, such as `digits/trades`: listing them and finding their files."""

from __future__ import annotations

from pathlib import Path

from hardtack.base.errors import UserError, did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]


def recipe_folder() -> Path:
    """The folder in the package. In a checkout it is a link to `recipes/`, which is taken where links are not kept."""
    for folder in (PACKAGE / "recipe_files", PACKAGE.parents[1] / "recipes"):
        if folder.is_dir():
            return folder.resolve()
    raise UserError("this installation has no recipes; give the path of a YAML file")


def list_recipes() -> list[str]:
    """Names such as `digits/trades`; files that serve as a base of others start with an underscore."""
    folder = recipe_folder()
    files = sorted(folder.rglob("*.yaml"))
    return [path.relative_to(folder).with_suffix("").as_posix() for path in files if not path.name.startswith("_")]


def is_recipe(name: str | Path) -> bool:
    """Whether a word names a recipe rather than a run folder."""
    path = Path(name).expanduser()
    short = str(name).removeprefix("recipes/")
    return path.suffix in (".yaml", ".yml") or (not path.exists() and short in list_recipes())


def is_study_row(name: str | Path) -> bool:
    """Whether a word has the form `STUDY:ROW`; a recipe's name and a file's path have no colon."""
    from hardtack.studies.study_files import is_study

    study, colon, row = str(name).partition(":")
    return bool(colon and row) and not Path(name).exists() and is_study(study)


def find_recipe(name: str | Path) -> Path:
    """A YAML file by its path, or a recipe by its name (`digits/trades`, with or without `.yaml`)."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    short = str(name).removesuffix(".yaml").removeprefix("recipes/")
    if short in list_recipes():
        return recipe_folder() / f"{short}.yaml"
    near = did_you_mean(short, list_recipes())
    raise UserError(f"there is no recipe '{name}'{near or '; hardtack list recipes shows all'}")


def recipe_file(name: str) -> Path:
    """The file of a recipe by its name, bases of others (`architectures/_adversarial`) included."""
    folder = recipe_folder()
    if not (folder / f"{name}.yaml").is_file():
        known = [other.relative_to(folder).with_suffix("").as_posix() for other in folder.rglob("*.yaml")]
        raise UserError(f"there is no recipe '{name}'{did_you_mean(name, known)}")
    return folder / f"{name}.yaml"
