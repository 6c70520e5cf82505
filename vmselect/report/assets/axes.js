// Scales, ticks, frames, labels and named lines of charts.

function linearScale([from, to], [start, end]) {
  const span = to - from || 1;
  return (value) => start + ((value - from) / span) * (end - start);
}

function logScale([from, to], range) {
  const scale = linearScale([Math.log(from), Math.log(to)], range);
  return (value) => scale(Math.log(Math.max(value, from / 10)));
}

const DECIMAL_STEPS = [1, 2, 2.5, 5, 10];
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** About `count` round values between `from` and `to`. */
function linearTicks(from, to, count, steps) {
  const rough = (to - from) / count || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step =
    steps?.find((candidate) => candidate >= rough && rough >= steps[0] / 2) ??
    DECIMAL_STEPS.map((factor) => factor * size).find((candidate) => candidate >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to * (1 + 1e-9); i += 1) ticks.push(i * step);
  return ticks;
}

function logTicks(from, to, count, steps) {
  const all = steps && from >= 1 ? [...steps, ...decades(1e5, to, [1, 2, 5])] : decades(from, to, [1, 2, 5]);
  const inside = all.filter((tick) => tick >= from * 0.999 && tick <= to * 1.001);
  const stride = Math.max(1, Math.ceil(inside.length / count));
  return inside.filter((_, i) => i % stride === 0);
}

function decades(from, to, factors) {
  const found = [];
  for (let power = Math.floor(Math.log10(from)); 10 ** power <= to * 1.001; power += 1) {
    found.push(...factors.map((factor) => Number(`${factor}e${power}`)));
  }
  return found;
}

/** The label of a tick, with only as many digits as the axis needs. */
const tickLabel = {
  seconds: (value) => (value === 0 ? "0" : formatSeconds(value)),
  usd(value) {
    return value >= 1000 ? `$${grouped(significant(value, 4))}` : `$${significant(value, 3)}`;
  },
  count: (value) => formatCount(significant(value, 6)),
  share: (value) => `${significant(100 * value, 3)} %`,
};

/** An axis of whole numbers from zero to `most`. */
function countAxis(most, range, count) {
  return { scale: linearScale([0, most], range), ticks: linearTicks(0, most, count), unit: "count" };
}

/** The ratio of the largest to the smallest of `values`. */
function spanOf(values) {
  const usable = values.filter((value) => value > 0);
  return usable.length ? Math.max(...usable) / Math.min(...usable) : 1;
}

/** An axis for `values`: linear from zero, or logarithmic if their ratio exceeds `logBeyond`. */
function makeAxis(values, range, { unit, count = 5, logBeyond = 20, from = 0 }) {
  const usable = values.filter((value) => Number.isFinite(value) && value > 0);
  const [smallest, most] = [Math.min(...usable), Math.max(0, ...usable)];
  const steps = unit === "seconds" ? TIME_STEPS : undefined;
  if (spanOf(values) > logBeyond) {
    const domain = [smallest / 1.25, most * 1.25];
    return { scale: logScale(domain, range), ticks: logTicks(...domain, count + 2, steps), log: true, unit };
  }
  const domain = [from, most > from ? from + (most - from) * 1.06 : from + 1];
  return { scale: linearScale(domain, range), ticks: linearTicks(...domain, count, steps), log: false, unit };
}

/** An empty chart of the width of `host`, with `label` as its description for screen readers. */
function makeFrame(host, { height, label, margin }) {
  const width = Math.max(280, Math.round(host.clientWidth || 560));
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label, class: "chart" });
  replace(host, svg);
  const box = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
  return { svg, width, height, box, narrow: width < 480 };
}

function drawBottomAxis({ svg, box }, axis, title) {
  const group = s("g", { class: "axis" });
  for (const tick of axis.ticks) {
    const x = axis.scale(tick);
    group.append(
      s("line", { x1: x, x2: x, y1: box.top, y2: box.bottom, class: "grid" }),
      s("text", { x, y: box.bottom + 18, "text-anchor": "middle" }, tickLabel[axis.unit](tick)),
    );
  }
  group.append(s("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "base" }));
  group.append(s("text", { x: box.right, y: box.bottom + 38, "text-anchor": "end", class: "title" }, withScale(title, axis)));
  svg.append(group);
}

function drawLeftAxis({ svg, box }, axis, title) {
  const group = s("g", { class: "axis" });
  for (const tick of axis.ticks) {
    const y = axis.scale(tick);
    group.append(
      s("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: "grid" }),
      s("text", { x: box.left - 8, y: y + 4, "text-anchor": "end" }, tickLabel[axis.unit](tick)),
    );
  }
  group.append(s("text", { x: 0, y: 12, class: "title" }, withScale(title, axis)));
  svg.append(group);
}

function withScale(title, axis) {
  return axis.log ? `${title} (log scale)` : title;
}

const LABEL_PLACES = [
  // Positions above and below the point first, because its interval is drawn beside it.
  { dx: 8, dy: -8, anchor: "start" }, { dx: 8, dy: 16, anchor: "start" }, { dx: -8, dy: -8, anchor: "end" },
  { dx: -8, dy: 16, anchor: "end" }, { dx: 10, dy: 4, anchor: "start" }, { dx: -10, dy: 4, anchor: "end" },
  { dx: 8, dy: -22, anchor: "start" }, { dx: 8, dy: 30, anchor: "start" }, { dx: -8, dy: -22, anchor: "end" },
  { dx: -8, dy: 30, anchor: "end" }, { dx: 0, dy: -12, anchor: "middle" }, { dx: 0, dy: 22, anchor: "middle" },
];

/** About the width of a label in pixels. */
const textWidth = (text) => text.length * 6.9 + 4;

/** Places text beside points, where it overlaps no earlier label and no point, and if possible no line. */
class Labels {
  constructor(frame) {
    this.frame = frame;
    this.taken = [];
    this.lines = [];
  }

  /** Let no label overlap the mark at this position. */
  avoid(x, y, radius) {
    this.taken.push({ x1: x - radius, x2: x + radius, y1: y - radius, y2: y + radius });
  }

  /** Let no label overlap `text`, which ends at this position. */
  reserve(x, y, text) {
    this.taken.push({ x1: x - textWidth(text), x2: x, y1: y - 11, y2: y + 3 });
  }

  /** Let labels overlap this vertical or horizontal line only if they are needed and have no other place. */
  spare(x1, x2, y1, y2) {
    this.lines.push({ x1, x2, y1, y2 });
  }

  /** The same for a line in any direction. */
  spareLine([x1, y1], [x2, y2]) {
    const pieces = Math.max(1, Math.ceil(Math.hypot(x2 - x1, y2 - y1) / 8));
    for (let i = 0; i <= pieces; i += 1) {
      const [x, y] = [x1 + ((x2 - x1) * i) / pieces, y1 + ((y2 - y1) * i) / pieces];
      this.spare(x, x, y, y);
    }
  }

  /** Write `text` near a point. A label that is `needed` may cross lines. Returns whether there was a place. */
  place(x, y, text, attributes, { needed = true } = {}) {
    const width = textWidth(text);
    const { left, right, top, bottom } = this.frame.box;
    const apart = (a) => (b) => a.x2 < b.x1 || a.x1 > b.x2 || a.y2 < b.y1 || a.y1 > b.y2;
    const places = LABEL_PLACES.map(({ dx, dy, anchor }) => {
      const x1 = x + dx - { start: 0, middle: width / 2, end: width }[anchor];
      return { at: { x: x + dx, y: y + dy, "text-anchor": anchor }, area: { x1, x2: x1 + width, y1: y + dy - 11, y2: y + dy + 3 } };
    }).filter(({ area }) => (
      area.x1 >= left - 2 && area.x2 <= right + 6 && area.y1 >= top - 12 && area.y2 <= bottom && this.taken.every(apart(area))
    ));
    const found = places.find(({ area }) => this.lines.every(apart(area))) ?? (needed ? places[0] : undefined);
    if (!found) return false;
    this.taken.push(found.area);
    this.frame.svg.append(s("text", { ...found.at, ...attributes }, text));
    return true;
  }
}

/** Vertical positions near `wanted`, in the same order, at least `gap` apart and within `bounds`. */
function spreadApart(wanted, gap, [top, bottom]) {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]);
  const placed = [...wanted];
  let floor = top;
  for (const i of order) floor = (placed[i] = Math.max(placed[i], floor)) + gap;
  let ceiling = bottom;
  for (const i of order.reverse()) ceiling = (placed[i] = Math.min(placed[i], ceiling)) - gap;
  return placed;
}

/**
 * Draw lines {name, slot, points} with a dot at each point and the name, in at most `most` characters, at the end. A point
 * is {x, y, text, low?, high?, basis?}: text() returns its tooltip, low and high are its interval, and an unprobed point
 * is hollow. `steps` joins points by steps.
 */
function drawNamedLines({ svg, box }, x, y, lines, { most, steps = false }) {
  const shown = lines.filter(({ points }) => points.length);
  const ends = spreadApart(shown.map(({ points }) => y.scale(points.at(-1).y)), 15, [box.top + 4, box.bottom - 2]);
  shown.forEach(({ name: title, slot, points }, i) => {
    const few = points.length <= 60;
    const places = points.map((point) => [x.scale(point.x), y.scale(point.y)]);
    const path = places.map(([px, py], k) => (k === 0 ? `M${px},${py}` : steps ? `V${py}H${px}` : `L${px},${py}`));
    const group = s("g", { class: `line c${slot}` }, s("path", { d: path.join(""), class: "stroke" }));
    points.forEach(({ low, high, text, basis }, k) => {
      const [cx, cy] = places[k];
      const interval = { x1: cx, x2: cx, y1: y.scale(low), y2: y.scale(high), class: "leader" };
      const mark = s("g", null,
        low === undefined ? null : s("line", interval),
        s("circle", { cx, cy, r: few ? 4 : 2, class: `dot ${basis ?? ""}`.trim() }),
        few ? s("circle", { cx, cy, r: 10, class: "reach" }) : null);
      group.append(tooltip.attach(mark, text));
    });
    if (title) {
      const [endX, endY] = places.at(-1);
      group.append(
        s("line", { x1: endX + 5, x2: box.right + 6, y1: endY, y2: ends[i], class: "leader" }),
        s("text", { x: box.right + 9, y: ends[i] + 4, class: "label" }, shorten(title, most)),
      );
    }
    svg.append(group);
  });
}
