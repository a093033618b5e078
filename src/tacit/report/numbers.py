"""Numbers as text: with units, and with their spread to the same decimal place."""

from __future__ import annotations

import math

from tacit.report.statistics import Interval

SPREAD_DIGITS = 2  # significant digits of a spread, at least
# A spread that needs more decimals than its value by this has an exponent of its own.
MOST_EXTRA = 4
# Values outside of these have an exponent.
SMALLEST, LARGEST = 1e-4, 1e7


def format_number(value: float | None, form: str = ".4g", unit: str = "") -> str:
    """A number in a format, or a dash if there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:{form}}{unit}"


def format_bytes(count: float | None) -> str:
    """A number of bytes in decimal units, such as "1.23 MB"."""
    if count is None or not math.isfinite(count):
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(count) < 999.5 or unit == "PB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def format_duration(seconds: float | None) -> str:
    """A time such as "12.3 s", "4 min 05 s" or "2 h 13 min"."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def format_pair(mean: float, deviation: float, form: str) -> str:
    """A mean and its standard deviation, to the same decimal place.

    Args:
        mean: The mean; a dash if it is not finite.
        deviation: Its deviation; not shown if it is not finite.
        form: How the mean alone is shown; a small deviation adds decimals. A sign in front is kept.

    Example:
        >>> format_pair(81.2345, 1.5, ".2f"), format_pair(81.2345, 0.0012, ".2f")
        ('81.23 ± 1.50', '81.2345 ± 0.0012')
        >>> format_pair(0.00001234, 0.0000005, ".4g")
        '1.234e-05 ± 0.050e-05'
    """
    if not math.isfinite(mean):
        return "–"
    if not math.isfinite(deviation):
        return f"{mean:{form}}"
    first, second = format_alike((mean, deviation), deviation, form)
    return f"{first} ± {second.lstrip('+')}"


def format_difference(difference: Interval, form: str) -> list[str]:
    """A difference with its sign, then the ends of its interval, if it has one."""
    if math.isnan(difference.low):
        return [format_number(difference.mean, f"+{form}")]
    return format_alike(
        (difference.mean, difference.low, difference.high), difference.half_width, f"+{form}"
    )


def format_alike(values: tuple[float, ...], spread: float, form: str) -> list[str]:
    """Values that share a spread, all to the same decimal place.

    Two digits of the spread are visible, and as many of the first value as `form` shows.
    """
    sign = "+" if form.startswith("+") else ""
    largest = max(map(abs, (values[0], spread)))
    exponent = 0
    if largest and not SMALLEST <= largest < LARGEST:
        exponent = math.floor(math.log10(largest))
    factor = 10.0**-exponent
    places = _places(largest * factor, form)
    wanted = 1 if not spread else SPREAD_DIGITS - 1 - math.floor(math.log10(spread * factor))
    if wanted > places + MOST_EXTRA:
        # As good as no spread: it must not fill a table with zeros.
        return [_short(value, form) for value in values]
    shared = max(places, wanted)
    power = f"e{exponent:+03d}" if exponent else ""
    return [f"{value * factor:{sign}.{shared}f}{power}" for value in values]


def _places(value: float, form: str) -> int:
    """The decimals that a format such as ".2f" or ".4g" shows of a value."""
    digits = int(form.lstrip("+").strip(".fg"))
    if form.endswith("f"):
        return digits
    return max(0, digits - 1 - (math.floor(math.log10(value)) if value else 0))


def _short(value: float, form: str) -> str:
    rounded = f"{value:{form}}"
    return rounded if not value or float(rounded) else f"{value:.1e}"
