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

/** One box that follows the pointer or the focus and says what a mark stands for. */
const tooltip = {
  box: null,
  lines: new WeakMap(),

  /** Let `mark` show what `lines()` gives, an array of text, when it is pointed at. */
  attach(mark, lines) {
    this.lines.set(mark, lines);
    mark.classList.add("tip");
    return mark;
  },

  listen() {
    this.box = h("div", { class: "tooltip", role: "presentation", hidden: true });
    document.body.append(this.box);
    document.addEventListener("pointermove", (event) => this.show(event.target, event.clientX, event.clientY));
    document.addEventListener("pointerdown", (event) => this.show(event.target, event.clientX, event.clientY));
    document.addEventListener("scroll", () => (this.box.hidden = true), { passive: true });
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
