"""What every verb has in common.

Arguments that are no UTF-8 are a usage error. The system hands them over with lone surrogates in place of the bytes,
and nothing that a verb does with text takes those: not a path of a request, not a record, not JSON. Names of files are
no text (`Path`) and may have any bytes; but an empty name of a directory is refused: it comes from
a variable that is not set, and would mean the current directory.

Ctrl-C is one line and an exit code, also where a verb has nothing to say about it.

The help names what an option takes, and no type of Python's: a flag takes nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from oncelog.cli import exits
from oncelog.cli.screen import end


class Verb(TyperCommand):
    """The class of every verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Typer brings a Click of its own or uses the one that is there: the context is of either.
        rest = super().parse_args(ctx, args)
        _check_texts(ctx)
        return rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Typer would leave with 130 and without a word.
            end(exits.REFUSED, "interrupted")

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """The class of what holds verbs."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class VerbGroup(Group):
    """The class of a verb that has verbs of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        _check_texts(ctx)
        return rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            end(exits.REFUSED, "interrupted")


def _check_texts(ctx: Any) -> None:
    for parameter in ctx.command.params:
        for text in _texts(ctx.params.get(parameter.name)):
            if not _is_utf8(text):
                raise typer.BadParameter(f"{text!r} is not UTF-8", ctx, parameter)


def directory(text: str) -> Path:
    """The parser of an option that names one."""
    if not text:
        raise typer.BadParameter("it is empty, and names no directory (a dot is the current one)")
    return Path(text)


def _without_types(parameters: list[Any]) -> list[Any]:
    """Typer would write <bool> behind a flag, and <str> behind the name of an argument."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _no_type(ctx: Any) -> None:
    """Of an argument: its name says what it is."""


def _texts(given: object) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, list | tuple):
        yield from (text for text in given if isinstance(text, str))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
