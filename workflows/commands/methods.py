"""``fit`` and ``tune`` have a subcommand per method, with an option for each parameter of the method. A subcommand is made when it is
used.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from functools import partial
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from ...pipeline.registry import METHODS
from ..checking import choose
from .options import Command, Url

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from ...pipeline.records.declared import ExtraInput

PREFIX = "set_"  # of the names under which options hand parameters over: some are called as an option of the command is
_WORDS = {int: "N", float: "NUMBER", str: "TEXT", bool: "true|false", type(None): "null"}
_STREAM = ("stream", "n_features", "labels", "zero_based")


def type_words(hint: object) -> list[str]:
    """Return the accepted words of a type, and placeholders for numbers, lists and so on.

    Examples
    --------
    >>> from typing import Literal
    >>> type_words(Literal["auto"] | float | None)
    ['auto', 'NUMBER', 'null']
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_words(args[0])
    if origin is Literal:
        return [str(value).lower() if isinstance(value, bool) else str(value) for value in args]
    if origin in (Union, types.UnionType):
        return list(dict.fromkeys(word for arg in args for word in type_words(arg)))
    word = {list: "LIST", tuple: "LIST", dict: "MAPPING"}.get(origin or hint) or _WORDS.get(hint, "YAML")  # pyright: ignore[reportArgumentType]
    return word.split("|")


class Value(click.ParamType):
    """Text of a parameter, read as YAML. The text ``none`` means ``null``, unless ``none`` itself is allowed as a value."""

    name = "value"

    def __init__(self, field: FieldInfo) -> None:
        words = type_words(field.annotation)
        self.none = "none" if "null" in words and not {"none", "TEXT"} & set(words) else "null"
        self.words = [self.none if word == "null" else word for word in words]
        self.named = [word for word in self.words if not word.isupper()]

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the parsed value; the parameter model checks it later."""
        from ..yaml_source import read_scalar

        return None if value == self.none else read_scalar(value, "" if param is None else param.opts[0])

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the accepted words for shell completion."""
        return [CompletionItem(word) for word in self.named if word.startswith(incomplete)]


class Parameter(click.Option):
    """An option for a parameter of a method."""


def parameter_option(name: str, field: FieldInfo) -> Parameter:
    """Return the option of a parameter. It has no default, because only given parameters become part of a run."""
    flag, default, kind = f"--{name.replace('_', '-')}", field.default, Value(field)
    shown = kind.none if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    settings: dict[str, Any] = {"default": None, "help": f"{field.description}  [default: {shown}]"}
    if field.annotation is bool:
        return Parameter([f"{flag}/--no-{flag[2:]}", PREFIX + name], **settings)
    if name == "kernels":  # read where the columns are known
        return Parameter([flag, PREFIX + name], metavar="FILE|TEXT", **settings)
    if name == "gram_store":
        return Parameter([flag, PREFIX + name], type=Url("store"), metavar="GRAMS", **settings)
    return Parameter([flag, PREFIX + name], type=kind, metavar="|".join(kind.words), **settings)


def input_option(item: ExtraInput) -> click.Option:
    """Return the option of an input in addition to the data."""
    use = "store" if item.reads == "store" else "file"
    return click.Option([item.flag, item.name], type=Url(use), metavar="|".join([*item.words, use.upper()]), help=f"{item.form}.")


class MethodCommand(Command):
    """The command of one method."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. If an option belongs only to other methods, the error names those methods."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            group, flag = ctx.parent.command if ctx.parent else None, error.option_name
            takers = group.takers(flag, ctx) if isinstance(group, MethodGroup) else []
            if not takers:
                raise
            raise click.UsageError(f"{self.name} has no option {flag}: it belongs to {', '.join(takers)}", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the parameters of the method first, then the options of the command."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for title, kind in (("Parameters", True), ("Options", False)):
            self.write_options(title, [param for param in options if isinstance(param, Parameter) == kind], ctx, formatter)


class MethodGroup(click.Group):
    """A command with a subcommand for each method, such as ``gramplane fit fgm``. A subcommand has the options of a template and the
    parameters of its method.
    """

    def __init__(self, template: click.Command, methods: Callable[[], Iterable[str]] = METHODS.keys) -> None:
        """``template``: the command without a method; it receives the name as ``method``. ``methods``: the methods to list."""
        text = f"{cleandoc(template.help or '')}\n\n`gramplane {template.name} METHOD --help` shows the parameters of a method."
        super().__init__(template.name, help=text, short_help=template.short_help, subcommand_metavar="METHOD [OPTIONS]")
        self.template, self.methods = template, methods

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. The error for an option before the method says where to put it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"{error.option_name} stands before the method; name the method first, as in {ctx.command_path} fgm {error.option_name}",
                ctx,
            ) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the methods, in the order of the registry."""
        return [*self.methods()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a method. Raises ConfigError with the closest name if there is none."""
        if ctx.resilient_parsing and cmd_name not in METHODS:
            return None
        info, template = METHODS[choose(cmd_name, METHODS, "method")], self.template
        skipped = set() if info.config.takes_streams else set(_STREAM)
        skipped |= set() if info.config.has_scores else {"test_share"}
        own = [param for param in template.params if param.name not in skipped]
        added = [input_option(item) for item in info.extra_inputs if item.compared or template.name == "fit"]
        taken = {name for param in (*own, *added) for name in param.opts}
        fields = [parameter_option(name, field) for name, field in info.config.model_fields.items()]
        params = [*(field for field in fields if field.opts[0] not in taken), *own[:1], *added, *own[1:]]
        run = partial(template.callback or tuple, method=cmd_name)
        text = f"{info.title}.\n\n{cleandoc(template.help or '').replace('METHOD', cmd_name)}"
        return MethodCommand(cmd_name, callback=run, params=params, help=text, short_help=info.title)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the methods with their titles."""
        with formatter.section("Methods"):
            formatter.write_dl([(name, METHODS[name].title) for name in self.list_commands(ctx)])

    def takers(self, flag: str, ctx: click.Context) -> list[str]:
        """Return the methods that have this option."""
        commands = {name: self.get_command(ctx, name) for name in self.methods()}
        return [name for name, command in commands.items() if command and any(flag in param.opts for param in command.params)]


def method_group(methods: Callable[[], Iterable[str]] = METHODS.keys) -> Callable[[click.Command], MethodGroup]:
    """Convert a command to a group with a subcommand for each of ``methods``."""
    return lambda template: MethodGroup(template, methods)
