"""The `kbmesh` application: its global options and its commands."""

import importlib.metadata
import os
from pathlib import Path
from typing import Annotated

import typer

from kbmesh_cli.commands import kb, models, profile
from kbmesh_cli.commands.chunk import chunk
from kbmesh_cli.commands.demo import demo
from kbmesh_cli.commands.doctor import doctor
from kbmesh_cli.commands.evaluate import evaluate
from kbmesh_cli.commands.ingest import ingest
from kbmesh_cli.commands.search import search
from kbmesh_cli.commands.up import down, up
from kbmesh_cli.invocation import Invocation, tls_of

DEFAULT_HOME = Path("~/.kbmesh")

app = typer.Typer(
    name="kbmesh",
    help="Documents in, knowledge that can be found and cited out.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kbmesh {importlib.metadata.version('kbmesh-cli')}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="host:port of the retriever. That of a running `kbmesh up` by default, else 127.0.0.1:7400.",
            envvar="KBMESH_ENDPOINT",
        ),
    ] = None,
    tenant: Annotated[str, typer.Option(help="Whose knowledge bases are meant.", envvar="KBMESH_TENANT")] = "default",
    home: Annotated[
        Path | None,
        typer.Option(help="Folder of the local mesh: models, data, logs. ~/.kbmesh by default.", envvar="KBMESH_HOME"),
    ] = None,
    tls_ca: Annotated[
        str | None,
        typer.Option(
            help="Speak TLS: PEM file of the authorities that the mesh's certificates come from; `system` for the "
            "public ones.",
            envvar="KBMESH_TLS_CA",
        ),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option(help="PEM file of your own certificate, where the mesh asks for one.", envvar="KBMESH_TLS_CERT"),
    ] = None,
    tls_key: Annotated[str | None, typer.Option(help="PEM file of its private key.", envvar="KBMESH_TLS_KEY")] = None,
    tls_server_name: Annotated[
        str | None,
        typer.Option(
            help="Name in the mesh's certificates, where it is not the host of the endpoint.",
            envvar="KBMESH_TLS_SERVER_NAME",
        ),
    ] = None,
    plaintext: Annotated[
        bool,
        typer.Option("--plaintext", help="Let plain text go to another machine.", envvar="KBMESH_ALLOW_PLAINTEXT"),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """These options may also stand after the command."""
    context.obj = Invocation(
        endpoint=endpoint or None,
        tenant=tenant,
        home=Path(os.path.abspath((home or DEFAULT_HOME).expanduser())),
        home_named=home is not None,
        tls=tls_of(ca=tls_ca, cert=tls_cert, key=tls_key, server_name=tls_server_name),
        plaintext=plaintext,
    )


app.command()(up)
app.command()(down)
app.add_typer(kb.app, name="kb")
app.add_typer(profile.app, name="profile")
app.command()(ingest)
app.command()(search)
app.command()(chunk)
app.add_typer(models.app, name="models")
app.command("eval")(evaluate)
app.command()(doctor)
app.command()(demo)
