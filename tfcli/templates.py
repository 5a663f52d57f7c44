"""Templates of conversations, which are anybody's: they reach nothing outside, and cannot go on for ever."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Any

from tfcli.bounds import PART, SIZE, bounded, budget, foresee, made, weight, written
from tfcli.errors import ConfigError


def render(source: str, messages: list[dict[str, Any]], **facts: Any) -> str:
    """The text that a template makes of messages. Raises what goes wrong within it, whatever that is."""
    if len(source) > SIZE:
        raise ConfigError(f"chat template: has {len(source)} characters; must be at most {SIZE}")
    pieces, size = [], 0
    with bounded(messages) as left:
        for piece in compiled(source).generate(messages=messages, **facts):
            left.spend(1)
            pieces.append(piece)
            size += len(piece)
            left.admit(size)
    return "".join(pieces)


@lru_cache(maxsize=8)
def compiled(source: str) -> Any:
    """The template in an environment that reaches nothing outside it."""
    try:
        from jinja2 import TemplateError
    except ImportError:
        raise ConfigError("chat template: needs jinja2: pip install jinja2") from None

    def refuse(message: str) -> None:
        raise TemplateError(str(message))

    extensions = ["jinja2.ext.loopcontrols", _generation()]
    world = _world()(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=written)
    world.filters["tojson"] = _to_json
    world.filters = {name: _counted(name, filter_) for name, filter_ in world.filters.items()}
    world.filters |= {"_each": Each, "_made": made}
    del world.globals["lipsum"]
    world.globals |= {"raise_exception": refuse, "strftime_now": _now, "dict": lambda *a, **k: dict(*a, **k)}
    world.globals["namespace"] = _namespace()
    return world.from_string(source)


class Each(list):
    """What a loop goes through; each turn costs steps."""

    def __init__(self, values: Any, cost: int) -> None:
        super().__init__(values)
        budget().spend(len(self) // PART)
        self.cost = cost

    def __iter__(self) -> Iterator[Any]:
        left = budget()
        for value in super().__iter__():
            left.spend(self.cost)
            yield value


def _world() -> type:
    """Jinja's sandbox, in which turns, calls and sizes are counted."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class World(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def _parse(self, source: str, name: str | None, filename: str | None) -> Any:
            tree = _watched(super()._parse(source, name, filename))
            tree.set_environment(self)
            return tree

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            foresee(operator, left, right)
            return made(super().call_binop(context, operator, left, right))

        def call(__self, __context: Any, __obj: Any, *args: Any, **named: Any) -> Any:
            own = getattr(__obj, "__self__", None)
            if isinstance(own, (str, bytes, int)):
                args = tuple(_settled(arg) for arg in args)
                foresee(__obj.__name__, own, *args, *named.values())
            budget().spend(1 + sum(len(arg) for arg in args if isinstance(arg, (list, tuple))))
            return made(super().call(__context, __obj, *args, **named))

    return World


def _watched(tree: Any) -> Any:
    """A template whose loops count their turns, and in which what is put together is weighed."""
    from jinja2 import nodes
    from jinja2.visitor import NodeTransformer

    def through(name: str, node: Any, *numbers: int) -> Any:
        consts = [nodes.Const(number, lineno=node.lineno) for number in numbers]
        return nodes.Filter(node, name, consts, [], None, None, lineno=node.lineno)

    class Watch(NodeTransformer):
        def visit_For(self, node: Any) -> Any:
            texts = [text.data for text in node.find_all(nodes.TemplateData)]
            texts += [const.value for const in node.find_all(nodes.Const)]
            self.generic_visit(node)
            node.iter = through("_each", node.iter, 1 + sum(map(weight, texts)) // PART)
            return node

        def joins(self, node: Any) -> Any:
            self.generic_visit(node)
            return node if getattr(node, "ctx", "load") != "load" else through("_made", node)

        visit_Concat = visit_List = visit_Tuple = visit_Dict = joins

    return Watch().visit(tree)


def _counted(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose results cost steps and are of no great size."""
    passed = int(hasattr(filter_, "jinja_pass_arg"))  # what is none of the template's values

    @wraps(filter_)
    def counted(*args: Any, **named: Any) -> Any:
        inner, given = args[:passed], [_settled(arg) if name == "join" else arg for arg in args[passed:]]
        if name == "join":
            foresee(name, [*given[1:], *named.values(), ""][0], given[0])
        else:
            foresee(name, *given, *named.values())
        return made(filter_(*inner, *given, **named))

    return counted


def _settled(value: Any) -> Any:
    """The values of an iterator as a list."""
    return list(value) if isinstance(value, Iterator) else value


def _to_json(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **how)


def _now(layout: str) -> str:
    from datetime import datetime

    return datetime.now().strftime(layout)


def _namespace() -> type:
    """Variables that outlive a loop, none of which has the name of something internal; it is no text."""
    from jinja2.exceptions import SecurityError
    from jinja2.utils import Namespace

    class Plain(Namespace):
        def __init__(*args: Any, **named: Any) -> None:
            it, *given = args
            Namespace.__init__(it)
            for name, value in dict(*given, **named).items():
                it[name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                raise SecurityError(f"namespace: '{name}' begins with an underscore")
            Namespace.__setitem__(self, name, value)

        def __repr__(self) -> str:
            raise SecurityError("a namespace is no text; write one of its variables")

    return Plain


def _generation() -> type:
    """The tag that some templates put around what the assistant says, as if it were not there."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(
                parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line
            )

    return Generation
