// Building HTML and SVG. Text always enters as text nodes: no string from a profile is ever parsed as markup.

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

/** A name that came from outside: kept apart from the text around it, whatever its direction. */
function name(text, attributes) {
  return h("bdi", attributes, text);
}

function replace(host, ...children) {
  host.replaceChildren(...present(children));
}

/** "a, b and c" as nodes, each name isolated; beyond `most` the rest is counted. */
function listNames(names, most = 4) {
  const shown = names.length > most + 1 ? names.slice(0, most) : names;
  const rest = names.length - shown.length;
  const parts = shown.map((text) => name(text));
  if (rest) parts.push(`${formatCount(rest)} more`);
  return parts.flatMap((part, i) => (i === 0 ? [part] : [i === parts.length - 1 ? " and " : ", ", part]));
}

/**
 * One box that follows the pointer or the focus and describes a mark. Each chart is one stop of the Tab key;
 * the arrow keys go from mark to mark.
 */
const tooltip = {
  box: null,
  lines: new WeakMap(),

  /** Let `mark` show what `lines()` gives, an array of text, when it is pointed at or focused. */
  attach(mark, lines) {
    this.lines.set(mark, lines);
    mark.classList.add("tip");
    mark.setAttribute("role", "img");
    mark.setAttribute("tabindex", "-1");
    return mark;
  },

  /** Let the Tab key reach the marks of `chart`, best first where they have an order. */
  reach(chart) {
    chart.querySelector(".tip.best, .best .tip, .tip")?.setAttribute("tabindex", "0");
  },

  listen() {
    this.box = h("div", { class: "tooltip", role: "presentation", hidden: true });
    document.body.append(this.box);
    document.addEventListener("pointermove", (event) => this.show(event.target, event.clientX, event.clientY));
    document.addEventListener("pointerdown", (event) => this.show(event.target, event.clientX, event.clientY));
    // A focused mark is scrolled into view, and its box goes with it; any other box would stay behind.
    document.addEventListener("scroll", () => this.focus(document.activeElement), { passive: true });
    document.addEventListener("focusin", (event) => this.focus(event.target));
    document.addEventListener("keydown", (event) => this.step(event));
  },

  /** Describe the focused mark, beside it and to a screen reader. */
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
