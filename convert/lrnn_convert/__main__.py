import sys

from . import signals


def main() -> int:
    signals.install()
    from . import cli                      # slow: numpy
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
