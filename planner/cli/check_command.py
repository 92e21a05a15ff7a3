"""`planner check`: whether a model trains the same when it is cut."""

import click

from planner.cli.parameters import as_json, attention, revision, trust_remote_code
from planner.errors import ModelError


@click.command()
@click.argument("model")
@attention
@revision
@trust_remote_code
@as_json
def check(
    model: str,
    attention: str,
    revision: str | None,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Cut a small copy of MODEL everywhere, and compare it with itself unsplit.

    MODEL is a hub id, a folder in Hugging Face format, or a type that
    transformers knows, such as llama. The copy has the same architecture and
    each kind of layer; no weight is read. Ends with 0 only if the loss and
    every gradient are the same under every cut.
    """
    from planner import artifact  # msgspec
    from planner.chain.check import check_model  # torch
    from planner.chain.check_text import describe_check, offence

    report = check_model(
        model,
        attention=attention,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    if as_json:
        click.echo(artifact.to_json(report), nl=False)
    else:
        click.echo(describe_check(report))
    if not report.exact:
        raise ModelError(offence(report))
