"""The computing tools: exact, bounded, nothing but arithmetic."""

from decimal import Decimal

import pytest

from treadle_runtime.tools.figures import csv_rows, evaluate, markdown_rows, plain, render, totals


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2", "0.3"),
        ("round((1180 - 1000) / 1000 * 100, 1)", "18"),
        ("-2 ** 2", "-4"),
        ("max(1, 2, 3) - min(4, 5) + abs(-1) + sum(1, 2)", "3"),
        ("7 // 2 + 7 % 2", "4"),
        ("1e3", "1000"),
    ],
)
def test_arithmetic_is_exact(expression: str, value: str) -> None:
    assert plain(evaluate(expression)) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os')",
        "().__class__",
        "a",
        "[1]",
        "1 if 1 else 2",
        "'a' * 3",
        "True",
        "max()",
        "round(x=1)",
        "1 +",
        "9 ** 9999999",
        "1 / 0",
        "(" * 500,
        "-1 ** 0.5 + (-1) ** 0.5",
    ],
)
def test_nothing_else_is_evaluated(expression: str) -> None:
    with pytest.raises(ValueError, match=r"expression|finite value|exponents|number"):
        evaluate(expression)


def test_tables_of_markdown_and_csv_are_read_alike() -> None:
    first = "text\n\n| month | amount |\n|---|---:|\n| 2026-01 | 1,000 |\n\nmore\n\n"
    markdown = first + "| month | amount |\n|-|-|\n| 2026-02 | 2 000 € |\n"
    csv = "month, amount\n2026-01, 500\n"
    rows = [*markdown_rows(markdown), *csv_rows(csv)]
    assert totals(rows, "month", "amount") == {"2026-01": Decimal(1500), "2026-02": Decimal(2000)}


def test_rows_can_be_chosen_and_changes_shown() -> None:
    rows = [
        {"month": month, "region": region, "amount": amount}
        for month, region, amount in [
            ("02", "n", "150"),
            ("01", "n", "100"),
            ("01", "s", "7"),
            ("03", "n", "0"),
        ]
    ]
    sums = totals(rows, "month", "amount", where="region=n")
    assert render("month", "amount", sums, change=True).splitlines() == [
        "| month | amount | change | change % |",
        "|---|---:|---:|---:|",
        "| 01 | 100 | - | - |",
        "| 02 | 150 | +50 | +50.0 |",
        "| 03 | 0 | -150 | -100.0 |",
    ]
    assert render("month", "amount", sums, change=False).endswith("| total | 250 |")


def test_a_heading_or_a_number_that_is_not_there_is_told() -> None:
    rows = [{"month": "01", "amount": "many"}]
    with pytest.raises(ValueError, match="headings found: amount, month"):
        totals(rows, "monat", "amount")
    with pytest.raises(ValueError, match="'many' in column 'amount' is no number"):
        totals(rows, "month", "amount")
