import sys
from importlib.util import find_spec
from pathlib import Path

from . import __version__, signals


def missing_packages(found: str) -> str:
    """The error if a package is not installed: `found` is the name of one."""
    import re
    import shlex
    import tomllib
    specs = [found]
    project = Path(__file__).parents[1] / "pyproject.toml"
    if project.is_file():                  # else pip installed us, with all packages
        project = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        specs = [s for s in project["dependencies"]
                 if find_spec(re.match(r"\w+", s)[0]) is None] or specs
    names = ", ".join(re.match(r"\w+", s)[0] for s in specs)
    return (f"lrnn-convert: {sys.executable} has no {names}; install what is missing: "
            f"{sys.executable} -m pip install {shlex.join(specs)}, or set LRNN_PYTHON to a Python "
            "that has it")


def main() -> int:
    signals.install()
    if sys.argv[1:] == ["--version"]:      # needs no packages
        print(f"lrnn-convert {__version__}")
        return 0
    try:
        from . import cli                  # slow: numpy
    except ModuleNotFoundError as e:
        print(missing_packages(e.name), file=sys.stderr)
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
