// Builds HTML and SVG. Text is always added as text nodes, so that no string from a profile is parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with attributes and children (elements or text). */
function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element with attributes and children. */
function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined);
}

/** A name from a profile or catalog, isolated from the writing direction of the text around it. */
function name(text, attributes) {
  return h("bdi", attributes, text);
}

/** A text as nodes, with commands between backticks as code. */
function withCode(text) {
  const parts = text.split("`");
  // An odd number of backticks: one of them is not a quotation mark.
  return parts.length % 2 ? parts.map((part, i) => (i % 2 ? h("code", null, part) : part)) : [text];
}

function replace(host, ...children) {
  host.replaceChildren(...present(children));
}

/** "a, b and c" as nodes. Of more than `most` names, the rest is counted. */
function listNames(names, most = 4) {
  const shown = names.length > most + 1 ? names.slice(0, most) : names;
  const rest = names.length - shown.length;
  const parts = shown.map((text) => name(text));
  if (rest) parts.push(`${formatCount(rest)} more`);
  return parts.flatMap((part, i) => (i === 0 ? [part] : [i === parts.length - 1 ? " and " : ", ", part]));
}

/**
 * A box that describes the mark of a chart at the pointer or the focus. The Tab key moves from chart to chart,
 * the arrow keys from mark to mark.
 */
const tooltip = {
  box: null,
  lines: new WeakMap(),

  /** Show the lines of text that `lines()` returns when the pointer or the focus is on `mark`. */
  attach(mark, lines) {
    this.lines.set(mark, lines);
    mark.classList.add("tip");
    mark.setAttribute("role", "img");
    mark.setAttribute("tabindex", "-1");
    return mark;
  },

  /** Let the Tab key focus a mark of `chart`: the best candidate, else the first. */
  reach(chart) {
    chart.querySelector(".tip.best, .best .tip, .tip")?.setAttribute("tabindex", "0");
  },

  listen() {
    this.box = h("div", { class: "tooltip", role: "presentation", hidden: true });
    document.body.append(this.box);
    document.addEventListener("pointermove", (event) => this.show(event.target, event.clientX, event.clientY));
    document.addEventListener("pointerdown", (event) => this.show(event.target, event.clientX, event.clientY));
    // The box moves with a focused mark when the page scrolls.
    document.addEventListener("scroll", () => this.focus(document.activeElement), { passive: true });
    document.addEventListener("focusin", (event) => this.focus(event.target));
    document.addEventListener("keydown", (event) => this.step(event));
  },

  /** Describe the focused mark in the box and to screen readers. */
  focus(target) {
    const lines = this.lines.get(target)?.();
    if (!lines) return void (this.box.hidden = true);
    target.setAttribute("aria-label", lines.join(", "));
    const { left, bottom, width } = target.getBoundingClientRect();
    this.show(target, left + width / 2, bottom - 8);
  },

  step(event) {
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") this.box.hidden = true;
    if (!way || !this.lines.has(event.target)) return;
    event.preventDefault();
    const marks = [...event.target.closest("svg").querySelectorAll(".tip")];
    const next = marks[(marks.indexOf(event.target) + way + marks.length) % marks.length];
    event.target.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus({ preventScroll: true });
  },

  show(target, x, y) {
    const lines = target instanceof Element ? this.lines.get(target.closest(".tip"))?.() : undefined;
    this.box.hidden = !lines;
    if (!lines) return;
    replace(this.box, lines.map((line, i) => h(i ? "span" : "strong", { dir: "auto" }, line)));
    const { offsetWidth, offsetHeight } = this.box;
    const left = Math.min(x + 14, document.documentElement.clientWidth - offsetWidth - 8);
    const below = y + 16 + offsetHeight < window.innerHeight;
    this.box.style.left = `${Math.max(8, left)}px`;
    this.box.style.top = `${below ? y + 16 : y - offsetHeight - 12}px`;
  },
};
