"""Things found by name: registered, offered by an installed package, or in a module of the user's."""

import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any


def lookup(
    name: str,
    registered: Mapping[str, Any],
    group: str,
    setting: str,
    fits: Callable[[Any], bool],
    *,
    imports: bool,
) -> Any:
    """What `name` stands for.

    Args:
        registered: what is known by its name.
        group: the entry points to look at next.
        setting: what the name is the value of, for errors.
        fits: whether what was found is what is wanted.
        imports: whether the module of ``module:name`` may be imported, from the current directory too. Importing runs
            it, so a name that comes out of a data file is only looked up in modules that are loaded already.
    """
    if name in registered:
        return registered[name]
    if ":" in name:
        found = _in_module(name, setting, imports=imports)
    else:
        offered = {entry.name: entry for entry in entry_points(group=group)}
        if name not in offered:
            known = ", ".join([*registered, *offered])
            raise ValueError(f"{setting}: expected one of {known} or module:name, got {name!r}")
        found = offered[name].load()
    if not fits(found):
        raise ValueError(f"{setting}: {name!r} is not of the kind that is expected, it is {found!r}")
    return found


def _in_module(name: str, setting: str, *, imports: bool) -> Any:
    module_name, _, attribute = name.partition(":")
    if imports and module_name not in sys.modules:
        import_from_here(module_name, setting)
    if module_name not in sys.modules:
        raise ValueError(
            f"{setting}: {name} needs the module {module_name}, which a file may not load by itself; import it first, "
            f"on the command line by --import {module_name}"
        )
    # Not getattr: a module may have a function that makes attributes, and a file may not call it.
    found = vars(sys.modules[module_name]).get(attribute)
    if found is None:
        raise ValueError(f"{setting}: the module {module_name} has no {attribute!r}")
    return found


def import_from_here(module: str, setting: str) -> None:
    """Import a module that the user named, from the current directory too."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{setting}: expected the name of a module, got {module!r}")
    sys.path.insert(0, "")
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{setting}: cannot import {module} ({error})") from error
    finally:
        sys.path.remove("")
