"""Contrast of the texts and marks of a page, from the colours that the browser computes."""

from __future__ import annotations

from typing import Any

LEAST = {"text": 4.5, "mark": 3.0}
"""Least contrast with the background: WCAG 2.2, success criteria 1.4.3 and 1.4.11, level AA."""

SCRIPT = """
    const parse = (text) => {
      const numbers = text.match(/[\\d.]+/g)?.map(Number);
      if (!numbers) return [0, 0, 0, 0];
      const scale = text.startsWith("color(") ? 255 : 1; // "color(srgb 0.1 0.2 0.3)" or "rgb(25, 51, 77)"
      return [...numbers.slice(0, 3).map((value) => value * scale), numbers[3] ?? 1];
    };
    const over = ([r, g, b, a], below) => [r, g, b].map((value, i) => value * a + below[i] * (1 - a));
    const backgroundOf = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = parse(getComputedStyle(at).backgroundColor);
        if (colour[3] > 0) return over(colour, colour[3] < 1 ? backgroundOf(at.parentElement) : [0, 0, 0]);
      }
      return [255, 255, 255];
    };
    const luminance = (colour) => {
      const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      const [r, g, b] = colour.map((value) => linear(value / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => {
      const [x, y] = [luminance(a), luminance(b)];
      return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    };
    const opacityOf = (element) => {
      let opacity = 1;
      for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
      return opacity;
    };
    const visible = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".skip");
    const nameOf = (element) => {
      const own = `${element.tagName.toLowerCase()}.${[...element.classList].join(".")}`;
      return `${element.parentElement?.getAttribute("class") ?? element.parentElement?.tagName} > ${own}`;
    };
    const found = [];
    const add = (kind, element, colours, background) => {
      const opacity = opacityOf(element);
      const ratios = colours.filter(([, , , a]) => a > 0)
        .map(([r, g, b, a]) => contrast(over([r, g, b, a * opacity], background), background));
      if (ratios.length) found.push([kind, nameOf(element), Math.max(...ratios)]);
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const element = texts.currentNode.parentElement;
      if (!texts.currentNode.data.trim() || !visible(element) || element.closest("script, style, option")) continue;
      const style = getComputedStyle(element);
      const colour = parse(element instanceof SVGElement ? style.fill : style.color);
      add("text", element, [colour], backgroundOf(element));
    }
    for (const input of document.querySelectorAll("input[type=number], input[type=search], select")) {
      if (!visible(input)) continue;
      const style = getComputedStyle(input);
      const written = [style, getComputedStyle(input, "::placeholder")].map(({ color }) => parse(color));
      for (const colour of written) add("text", input, [colour], backgroundOf(input));
      add("mark", input, [parse(style.borderTopColor)], backgroundOf(input.parentElement));
    }
    // Grid lines and bands only support what is marked, and `reach` enlarges what the pointer hits.
    const marks = "svg.chart :is(circle, rect, path, line, polyline):not(.grid, .base, .band, .reach, .axis)";
    for (const mark of document.querySelectorAll(marks)) {
      if (!visible(mark)) continue;
      const style = getComputedStyle(mark);
      const [fill, stroke] = [parse(style.fill), parse(style.stroke)];
      fill[3] *= Number(style.fillOpacity);
      stroke[3] *= Number(style.strokeOpacity);
      add("mark", mark, mark.tagName === "line" ? [stroke] : [fill, stroke], backgroundOf(mark.ownerSVGElement));
    }
    for (const mark of document.querySelectorAll("i.basis, .legend i, .meter i")) {
      if (!visible(mark)) continue;
      const style = getComputedStyle(mark);
      const border = parseFloat(style.borderTopWidth) > 0 ? [parse(style.borderTopColor)] : [];
      add("mark", mark, [parse(style.backgroundColor), ...border], backgroundOf(mark.parentElement));
    }
    return found;
"""
"""A script that returns [kind, name, contrast] of visible texts and marks: of fill and border, the higher contrast."""


def contrast_with_white(colour: str) -> float:
    """Contrast of a colour such as "#0072b2" with white.

    >>> contrast_with_white("#000000")
    21.0
    """
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def weak_colours(browser: Any) -> dict[str, float]:
    """The texts and marks of the open page that have too little contrast, with their lowest contrast."""
    found: list[tuple[str, str, float]] = browser.execute_script(SCRIPT)
    assert {kind for kind, _, _ in found} == set(LEAST)
    weak: dict[str, float] = {}
    for kind, name, ratio in found:
        if ratio < LEAST[kind]:
            key = f"{kind} {name}"
            weak[key] = min(round(ratio, 2), weak.get(key, 99.0))
    return weak
