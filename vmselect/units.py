"""Conversion of times and prices, and formatting of times, money, memory sizes and lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

SECONDS_PER_HOUR = 3600.0
JOULES_PER_KWH = 3_600_000.0
BYTES_PER_MB = 1_000_000  # networks and storage are billed in decimal units
BYTES_PER_GB = 1_000_000_000
MAX_USD_DIGITS = 7
"""Maximum number of decimal places of an amount in USD; smaller amounts are written with an exponent."""


def hours(seconds: float) -> float:
    """Convert ``seconds`` to hours."""
    return seconds / SECONDS_PER_HOUR


def cost_usd(seconds: float, usd_per_hour: float) -> float:
    """Cost in USD of ``seconds`` on a machine that costs ``usd_per_hour``."""
    return hours(seconds) * usd_per_hour


def format_seconds(seconds: float) -> str:
    """``seconds`` as text, in a suitable unit.

    >>> [format_seconds(s) for s in (0.0042, 0.31, 12.3, 95, 5400, 200_000)]
    ['4.2 ms', '310 ms', '12.3 s', '1 min 35 s', '1 h 30 min', '55.6 h']
    """
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return "-" + format_seconds(-seconds)
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    if seconds < 3599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if seconds < 36 * SECONDS_PER_HOUR:
        whole, rest = divmod(round(seconds / 60), 60)
        return f"{whole} h {rest} min" if rest else f"{whole} h"
    return f"{hours(seconds):,.1f} h"


def format_brief_seconds(seconds: float) -> str:
    """``seconds`` as text with two or three digits in one unit, for narrow tables.

    >>> [format_brief_seconds(s) for s in (0.0042, 12.3, 95, 5400, 200_000)]
    ['4.2 ms', '12 s', '1.6 min', '1.5 h', '56 h']
    """
    units = ((SECONDS_PER_HOUR, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
    if not math.isfinite(seconds):
        return "unknown"
    length, unit = next((pair for pair in units if seconds >= 0.9995 * pair[0]), units[-1])
    value = seconds / length
    return f"{value:,.0f} {unit}" if value >= 9.95 else f"{value:.2g} {unit}"


def format_usd(usd: float) -> str:
    """``usd`` as text with a dollar sign, with more decimals for small amounts.

    >>> [format_usd(u) for u in (0.0, 0.000084, 0.00123, 0.26, 12.5, 1234.5)]
    ['$0.00', '$0.000084', '$0.0012', '$0.26', '$12.50', '$1,234.50']
    """
    if not math.isfinite(usd):
        return "unknown"
    return f"-${format_amount(-usd)}" if usd < 0 else f"${format_amount(usd)}"


def format_amount(amount: float) -> str:
    """``amount`` of any currency, not negative, as text with more decimals for small amounts.

    >>> [format_amount(a) for a in (0.0, 0.000084, 0.00123, 0.26, 1234.5)]
    ['0.00', '0.000084', '0.0012', '0.26', '1,234.50']
    """
    if 0 < amount < 0.0995:
        if amount >= 1e-4:
            return f"{amount:.2g}"
        brief = f"{amount:.1e}"
        digits = 1 - int(brief.partition("e")[2])
        return f"{amount:.{digits}f}" if digits <= MAX_USD_DIGITS else brief
    return f"{amount:,.2f}"


def format_brief_usd(usd: float) -> str:
    """``usd`` as text with about two digits and without cents from $10 on, for narrow tables.

    >>> [format_brief_usd(u) for u in (0.00123, 0.264, 5.118, 27.2, 1234.5)]
    ['$0.0012', '$0.26', '$5.1', '$27', '$1,234']
    """
    if not math.isfinite(usd) or usd < 0.9995:
        return format_usd(usd)
    return f"${usd:,.0f}" if usd >= 9.95 else f"${usd:.2g}"


def format_kwh(kwh: float) -> str:
    """An energy as text, in Wh or kWh.

    >>> [format_kwh(e) for e in (0.0, 0.0123, 2.5, 1234.5)]
    ['0 Wh', '12.3 Wh', '2.5 kWh', '1,234 kWh']
    """
    return _format_thousandths(kwh, "Wh", "kWh")


def format_kg(kg: float) -> str:
    """A mass as text, in g or kg.

    >>> [format_kg(m) for m in (0.0042, 1.234, float("nan"))]
    ['4.2 g', '1.23 kg', 'unknown']
    """
    return _format_thousandths(kg, "g", "kg")


def _format_thousandths(value: float, smaller_unit: str, unit: str) -> str:
    """A ``value`` in ``unit`` as text; below 1 in ``smaller_unit``, which is a thousandth of ``unit``."""
    if not math.isfinite(value):
        return "unknown"
    if value < 0:
        return "-" + _format_thousandths(-value, smaller_unit, unit)
    if value < 0.9995:
        return f"{value * 1000:.3g} {smaller_unit}"
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:,.0f} {unit}"


def format_chance(chance: float) -> str:
    """A probability as text. One that no random draw has met is not zero: it is small, like the others below 1 %.

    >>> [format_chance(p) for p in (0.0, 0.004, 0.125, 0.83, 0.999, 1.0)]
    ['<1%', '<1%', '12%', '83%', '>99%', '100%']
    """
    if chance < 0.01:
        return "<1%"
    return ">99%" if 0.99 < chance < 1 else f"{chance:.0%}"


def format_epochs(epochs: float) -> str:
    """A number of epochs as text. A mean number of epochs may be a fraction.

    >>> [format_epochs(n) for n in (50, 18.3333, 12.0, 12_500, 1.04)]
    ['50', '18.3', '12', '12,500', '1']
    """
    return f"{epochs:,.1f}".removesuffix(".0")


def format_epoch_count(epochs: float) -> str:
    """A number of epochs as text, followed by "epoch" or "epochs".

    >>> [format_epoch_count(n) for n in (1, 13.5, 20)]
    ['1 epoch', '13.5 epochs', '20 epochs']
    """
    return f"{format_epochs(epochs)} epoch{'' if epochs == 1 else 's'}"


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """A number as text, followed by ``noun``, or by its plural (``noun`` with an s) unless the number is 1.

    >>> format_count(1, "price"), format_count(0, "price"), format_count(1200, "run of a trial", "runs of trials")
    ('1 price', '0 prices', '1,200 runs of trials')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def list_some(names: Sequence[object], most: int) -> str:
    """The first ``most`` names as text, followed by the number of names left out.

    >>> list_some("ab", 3), list_some("abcde", 3)
    ('a, b', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(str(name) for name in names[:most]) + more


def list_all(names: Sequence[object]) -> str:
    """All names as text, joined by commas and "and".

    >>> list_all("a"), list_all("abc")
    ('a', 'a, b and c')
    """
    *others, last = (str(name) for name in names)
    return f"{', '.join(others)} and {last}" if others else last


def printable(text: str) -> str:
    """``text`` with a replacement character for each control character, which a terminal would interpret.

    >>> printable("a\\x1b[31mb")
    'a�[31mb'
    """
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def printable_lines(text: str) -> str:
    """``text`` with a replacement character for each control character except line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def format_bytes(count: float) -> str:
    """A number of bytes as text in binary units, such as MiB.

    >>> format_bytes(16 * 1024**3)
    '16.0 GiB'
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
