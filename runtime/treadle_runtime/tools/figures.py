"""Tools that compute: arithmetic and sums over tables, so that no figure has to be guessed by a model."""

import ast
import asyncio
import csv
import io
import operator
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, DecimalException, InvalidOperation, localcontext
from fnmatch import fnmatchcase
from typing import Annotated, Final

from langchain_core.tools import BaseTool, ToolException
from pydantic import Field

from treadle_runtime.tools.files import as_tool
from treadle_runtime.workspace.files import Directory, WorkspaceError

EXPRESSION_LIMIT: Final = 1000
ROWS_LIMIT: Final = 100_000
GROUPS_LIMIT: Final = 500
_POWER_LIMIT: Final = 1000
_DIGITS: Final = 28

_BINARY: Final[dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Final[dict[str, Callable[..., Decimal]]] = {
    "abs": lambda value: abs(value),
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "sum": lambda *values: sum(values, Decimal(0)),
    "round": lambda value, digits=Decimal(0): round(value, int(digits)),
}
_NUMBER_NOISE: Final = re.compile(r"[\s,'_€$£%]")


class FigureTools:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def tools(self) -> list[BaseTool]:
        return [as_tool(function) for function in (self.calculate, self.sum_table)]

    async def calculate(
        self,
        expression: Annotated[
            str,
            Field(
                max_length=EXPRESSION_LIMIT, description="For example round((1180 - 1000) / 1000 * 100, 1)"
            ),
        ],
    ) -> str:
        """Evaluate an arithmetic expression exactly: + - * / // % ** and abs, min, max, sum, round."""
        try:
            return plain(evaluate(expression))
        except ValueError as error:
            raise ToolException(str(error)) from error

    async def sum_table(
        self,
        files: Annotated[
            str, Field(description="Shell pattern of CSV or Markdown files, for example notes/*.md")
        ],
        group_by: Annotated[str, Field(description="Heading of the column whose values are the groups")],
        value: Annotated[str, Field(description="Heading of the column to add up")],
        where: Annotated[str, Field(description="Optional: only rows with this, as heading=value")] = "",
        change: Annotated[
            bool, Field(description="Add each group's change against the group before it")
        ] = False,
    ) -> str:
        """Add up a column of all tables in the matching files, per group, sorted by group.

        Answers a Markdown table; with `change`, month-on-month figures when the groups are months.
        """
        try:
            rows = await asyncio.to_thread(self._rows, files)
            return render(group_by, value, totals(rows, group_by, value, where), change=change)
        except (ValueError, WorkspaceError) as error:
            raise ToolException(str(error)) from error

    def _rows(self, pattern: str) -> list[dict[str, str]]:
        paths = [file.path for file in self._directory.scan() if fnmatchcase(file.path, pattern)]
        if not paths:
            raise ValueError(f"no file matches {pattern!r}")
        rows: list[dict[str, str]] = []
        for path in paths:
            text = self._directory.read(path).decode(errors="replace")
            rows.extend(csv_rows(text) if path.endswith(".csv") else markdown_rows(text))
            if len(rows) > ROWS_LIMIT:
                raise ValueError(f"more than {ROWS_LIMIT} rows: use a narrower pattern")
        return rows


def evaluate(expression: str) -> Decimal:
    """The value of an arithmetic expression. Raises ValueError for anything else."""
    try:
        with localcontext() as context:
            context.prec = _DIGITS
            return _value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an arithmetic expression: {expression!r}") from error
    except (DecimalException, TypeError, OverflowError) as error:
        raise ValueError(f"{expression!r} has no finite value ({type(error).__name__})") from error


def _value(node: ast.expr) -> Decimal:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Decimal(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = _value(right)
            if abs(exponent) > _POWER_LIMIT:
                raise ValueError(f"exponents go up to {_POWER_LIMIT}")
            return _value(left) ** exponent
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _BINARY:
            return _BINARY[type(kind)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if (
            name in _FUNCTIONS and arguments
        ):
            return _FUNCTIONS[name](*(_value(argument) for argument in arguments))
        case _:
            raise ValueError(
                "only numbers, + - * / // % **, parentheses, abs, min, max, sum, round are allowed"
            )


def csv_rows(text: str) -> Iterator[dict[str, str]]:
    """The rows of one CSV table with a heading line."""
    for row in csv.DictReader(io.StringIO(text), skipinitialspace=True):
        yield {
            (name or "").strip(): (cell or "").strip() for name, cell in row.items() if isinstance(cell, str)
        }


def markdown_rows(text: str) -> Iterator[dict[str, str]]:
    """The rows of every pipe table in a Markdown text."""
    heading: list[str] | None = None
    for line in text.splitlines():
        if not line.strip().startswith("|"):
            heading = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if heading is None:
            heading = cells
        elif not all(set(cell) <= set("-: ") for cell in cells):
            yield dict(zip(heading, cells, strict=False))


def totals(rows: list[dict[str, str]], group_by: str, value: str, where: str = "") -> dict[str, Decimal]:
    """Sums per group, sorted by group. Raises ValueError for a heading or a number that is not there."""
    column, _, wanted = where.partition("=")
    sums: dict[str, Decimal] = {}
    for row in rows:
        if where and row.get(column.strip()) != wanted.strip():
            continue
        if group_by not in row or value not in row:
            continue
        sums[row[group_by]] = sums.get(row[group_by], Decimal(0)) + _number(row[value], value)
    if not sums:
        headings = sorted({name for row in rows for name in row})
        raise ValueError(f"no row has both {group_by!r} and {value!r}; headings found: {', '.join(headings)}")
    if len(sums) > GROUPS_LIMIT:
        raise ValueError(f"{len(sums)} groups, at most {GROUPS_LIMIT}: group by another column")
    return dict(sorted(sums.items()))


def _number(text: str, heading: str) -> Decimal:
    try:
        return Decimal(_NUMBER_NOISE.sub("", text))
    except InvalidOperation as error:
        raise ValueError(f"{text!r} in column {heading!r} is no number") from error


def render(group_by: str, value: str, sums: dict[str, Decimal], *, change: bool) -> str:
    """Sums as a Markdown table; with `change`, the difference to the row above and its percentage."""
    lines = [f"| {group_by} | {value} |" + (" change | change % |" if change else "")]
    lines.append("|---|---:|" + ("---:|---:|" if change else ""))
    before: Decimal | None = None
    for group, total in sums.items():
        line = f"| {group} | {plain(total)} |"
        if change:
            line += " - | - |" if before is None else f" {total - before:+f} | {percent(before, total)} |"
        lines.append(line)
        before = total
    if not change:
        lines.append(f"| total | {plain(sum(sums.values(), Decimal(0)))} |")
    return "\n".join(lines)


def percent(before: Decimal, after: Decimal) -> str:
    if before == 0:
        return "n/a"
    return f"{round((after - before) / before * 100, 1):+f}"


def plain(value: Decimal) -> str:
    """A number without an exponent and without trailing zeros."""
    if not value.is_finite():
        raise ValueError("no finite value")
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
