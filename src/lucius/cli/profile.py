"""`lucius profile`: servers by name, with their keys."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lucius.cli.completing import complete_profiles
from lucius.cli.failures import Unusable
from lucius.cli.output.confirming import confirm, yes_option
from lucius.cli.output.printing import output_option, show_json, show_lines, show_table
from lucius.cli.output.tables import Column, Table, aligned
from lucius.cli.server_profiles import ServerProfile, is_name, profiles_file, read_profiles, write_profiles
from lucius.client.addresses import AddressInvalid, check_address, has_credentials
from lucius.client.keys import KEY_CHARACTERS_MAX, is_key

name_argument = click.argument("name", shell_complete=complete_profiles)


@click.group()
def profile() -> None:
    """Servers by name, for people who use several.

    A profile is an address and the key for it, in a file that only you can read. Other commands use the profile in use,
    unless --server-profile, --url, LUCIUS_URL or LUCIUS_PROFILE names another server.
    """


@profile.command()
@click.argument("name")
@click.argument("url")
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Read the key from FILE (- is standard input). Without it, a terminal asks for the key.",
)
@click.option("--use", "in_use", is_flag=True, help="Use it from now on; the first profile is used at once.")
@click.option("--replace", is_flag=True, help="Replace a profile of this name.")
def add(name: str, url: str, key_file: Path | None, in_use: bool, replace: bool) -> None:
    """Add the server at URL as NAME."""
    if not is_name(name):
        raise Unusable(f"{name!r} is not a name for a profile: use up to 64 letters, digits, dots and dashes")
    try:
        check_address(url)
    except AddressInvalid as error:
        raise Unusable(str(error)) from error
    if has_credentials(url):
        raise Unusable("the address contains a user or a password: give the key with --key-file")
    known = read_profiles()
    if name in known.profiles and not replace:
        raise Unusable(f"there is a profile {name} already; --replace replaces it")
    key = _read_key(key_file)
    is_first = not known.profiles
    known.profiles[name] = ServerProfile(url.rstrip("/"), key)
    if in_use or is_first:
        known.current = name
    write_profiles(known)
    has_key = "with a key" if key else "without a key"
    use = "It is in use." if known.current == name else f"Use it with `lucius profile use {name}`."
    click.echo(f"Profile {name} is {url.rstrip('/')}, {has_key}. {use}")


def _read_key(key_file: Path | None) -> str:
    if key_file is not None:
        with click.open_file(str(key_file), "r", encoding="utf-8", errors="replace") as opened:
            key = str(opened.read(KEY_CHARACTERS_MAX + 1)).strip()
    elif sys.stdin.isatty():
        asked = click.prompt("Key (empty for none)", default="", hide_input=True, show_default=False, err=True)
        key = str(asked).strip()
    else:
        return ""
    if not is_key(key) or len(key) > KEY_CHARACTERS_MAX:
        raise Unusable("the key contains spaces or non-ASCII characters, or is too long")
    return key


@profile.command()
@click.argument("name", required=False, shell_complete=complete_profiles)
@click.option("--none", "is_none", is_flag=True, help="Use no profile.")
def use(name: str | None, is_none: bool) -> None:
    """Use the server of this profile from now on."""
    if (name is None) != is_none:
        raise click.UsageError("Name the profile to use, or pass --none.")
    known = read_profiles()
    url = "" if name is None else known.get(name).url
    known.current = name
    write_profiles(known)
    click.echo("No profile is in use." if name is None else f"Profile {name} is in use: {url}")


@profile.command("list")
@output_option
def list_profiles(output: str) -> None:
    """List the profiles. Keys are not shown."""
    known = read_profiles()
    if output == "json":
        show_json({"items": [_shown(name, one, known.current) for name, one in sorted(known.profiles.items())]})
    elif known.profiles:
        rows = [
            ("*" if name == known.current else "", name, one.url, "yes" if one.api_key else "no")
            for name, one in sorted(known.profiles.items())
        ]
        show_table(Table((Column("Use"), Column("Name"), Column("Server"), Column("Key")), rows))
    else:
        click.echo("No profiles; `lucius profile add NAME URL` adds one.", err=True)


@profile.command()
@click.argument("name", required=False, shell_complete=complete_profiles)
@output_option
def show(name: str | None, output: str) -> None:
    """Show a profile, or the one in use. Its key is not shown."""
    known = read_profiles()
    name = name or known.current
    if name is None:
        raise Unusable("no profile is in use; `lucius profile list` shows them")
    shown = _shown(name, known.get(name), known.current)
    if output == "json":
        show_json(shown)
        return
    yes = {True: "yes", False: "no"}
    facts = [("Name", name), ("Server", str(shown["url"])), ("Key", yes[bool(shown["has_key"])])]
    show_lines(aligned([*facts, ("In use", yes[bool(shown["in_use"])]), ("File", str(profiles_file()))]))


@profile.command()
@name_argument
@yes_option
def remove(name: str, yes: bool) -> None:
    """Remove a profile and its key."""
    known = read_profiles()
    known.get(name)
    confirm(f"Remove profile {name} and its key?", yes)
    del known.profiles[name]
    known.current = None if known.current == name else known.current
    write_profiles(known)
    click.echo(f"Profile {name} is removed." + ("" if known.current else " No profile is in use."))


def _shown(name: str, one: ServerProfile, current: str | None) -> dict[str, object]:
    return {"name": name, "url": one.url, "has_key": bool(one.api_key), "in_use": name == current}


COMMANDS = (profile,)
