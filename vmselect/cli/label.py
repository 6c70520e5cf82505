"""The command ``vmselect label``, which names the machine of records that were made without an instance type."""

from __future__ import annotations

from typing import Annotated

import typer

from vmselect.cli.options import note_unknown_type
from vmselect.cli.output import JsonOption, flag, print_err, print_written
from vmselect.units import count_of


def label(
    records: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORDS...", help="Files or folders of records, or URLs of folders.", show_default=False
        ),
    ],
    instance_type: Annotated[
        str, typer.Option(help="Instance type on which the records were made, such as g4dn.xlarge.", show_default=False)
    ],
    region: Annotated[str | None, typer.Option(help="Region of the machine, such as us-east-1.")] = None,
    provider: Annotated[str | None, typer.Option(help="Provider of the machine, such as aws.")] = None,
    replace: Annotated[bool, flag("--replace", help="Also change records that already name an instance type.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Name the machine of records that were made without an instance type, so that they can be priced and ranked.

    Each file is changed in place. Its first content is kept next to it, in a file with the additional ending .original,
    which no command reads. In the record, the new values have the source "given". The paths of the changed files are
    printed. Records of different hardware are refused. Exit code 1 if no file was changed, 2 if a file cannot be read.

    Examples:

      vmselect label profiles/unknown-64-20260901T101500.json --instance-type g4dn.xlarge

      vmselect label profiles/ --instance-type Standard_NC6s_v3 --provider azure --region eastus
    """
    from vmselect.records.history import ORIGINAL, label_records

    done = label_records(records, instance_type=instance_type, region=region, provider=provider, replace=replace)
    print_written(done.changed, as_json=as_json)
    if done.changed:
        files = count_of(len(done.changed), "file")
        print_err([f"Wrote the instance type {instance_type} to {files}. The originals end in {ORIGINAL}."])
        print_err(filter(None, [note_unknown_type(instance_type)]))
    if done.named:
        files = count_of(len(done.named), "file already names", "files already name")
        print_err([f"{files} an instance type. To change this too, add --replace."])
    print_err(done.unreadable, always=True)
    if done.unreadable or not done.changed:
        raise typer.Exit(2 if done.unreadable else 1)
