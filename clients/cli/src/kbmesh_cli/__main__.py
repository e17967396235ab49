"""Runs the `kbmesh` command: every expected error becomes one readable line and an exit code."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import typer
from kbmesh_client import KbmeshError
from typer.main import get_command

from kbmesh_cli.app import app
from kbmesh_cli.errors import CliError, Failure, failure_of, one_line
from kbmesh_cli.invocation import hoist_global_options, wants_json
from kbmesh_cli.output import messages, print_failure

FAILED = 1
USAGE = 2
INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


def main() -> NoReturn:
    """Entry point of the `kbmesh` script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs a command. Gives its exit code: 0, 1 for a failure, 2 for a wrong call, 130 after Ctrl-C."""
    as_json = wants_json(arguments)
    try:
        outcome = get_command(app).main(args=hoist_global_options(arguments), prog_name="kbmesh", standalone_mode=False)
    except (KbmeshError, CliError) as error:
        failure = failure_of(error)
        print_failure(failure, as_json=as_json)
        return USAGE if failure.reason == "USAGE" else FAILED
    except typer.TyperException as error:  # typer's own: an unknown option, a missing argument
        if type(error).__name__ == "NoArgsIsHelpError":  # has no public name; its message is the help
            sys.stderr.write(f"{error.format_message()}\n")
        else:
            command = getattr(getattr(error, "ctx", None), "command_path", "kbmesh")
            hint = f"`{command} --help` shows how it is called"
            print_failure(Failure(reason="USAGE", message=one_line(error.format_message()), hint=hint), as_json=as_json)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        messages().print("interrupted")
        return INTERRUPTED
    except ValueError as error:  # the SDK's answer to an option that there is not
        print_failure(Failure(reason="USAGE", message=one_line(str(error))), as_json=as_json)
        return USAGE
    return outcome if isinstance(outcome, int) else 0


if __name__ == "__main__":
    main()
