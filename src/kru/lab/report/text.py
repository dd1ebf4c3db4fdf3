"""Tables in plain text and in Markdown."""

from collections.abc import Sequence


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A plain table, the first `left` columns flush left and the others flush right.

    >>> print(columns(["model", "test"], [["KRU", "8.59"], ["LSTM", "8.67"]]))
    model  test
    KRU    8.59
    LSTM   8.67
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """The same as a Markdown table.

    >>> print(markdown(["model", "test"], [["KRU", "8.59"]]))
    | model | test |
    | --- | ---: |
    | KRU | 8.59 |
    """
    rule = ["---" if index < left else "---:" for index in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))
