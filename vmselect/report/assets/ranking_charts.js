// The charts of the ranking. They draw rows that model.js has computed.

const MAX_POINTS = 200;
const MAX_WHISKERS = 40; // of more points, only the best and the Pareto front show their intervals
const MAX_LINES = 7;
const MAX_BARS = 10;
const LINE = 13; // pixels from one line of a label to the next

function machine(row) {
  return row.candidate.label;
}

function describe(row) {
  return [
    machine(row),
    ...[TIME, COST].map(({ fields, format }) => {
      const [value, low, high] = fields.map((field) => format(row[field]));
      return row.candidate.interval_only ? `${low} – ${high}` : `${value} (${low} – ${high})`;
    }),
    `${formatUsd(row.candidate.usd_per_hour)} per hour · rank ${row.rank}`,
    BASES[row.candidate.basis] ?? row.candidate.basis,
  ];
}

/** A label of one or more lines, vertically centered at `y`. */
function labelText({ x, y, ...more }, lines) {
  const at = (line) => y + LINE * (line - (lines.length - 1) / 2);
  return s("text", { ...more, class: "label" }, ...lines.map((line, i) => s("tspan", { x, y: at(i) }, line)));
}

/** Draw time against cost with intervals and the Pareto front. Returns the number of candidates shown. */
function drawTimeCost(host, rows, settings) {
  const frame = makeFrame(host, {
    height: host.clientWidth < 480 ? 340 : 420,
    label: `Time against cost of ${rows.length} candidates`,
    margin: { left: 56, right: 24, top: 30, bottom: 46 },
  });
  const shown = rows.filter((row, i) => i < MAX_POINTS || row.pareto);
  const { svg, box } = frame;
  const times = shown.flatMap((row) => [row.seconds, row.seconds_high]);
  const costs = shown.flatMap((row) => [row.cost_usd, row.cost_high]);
  const logBeyond = Math.max(spanOf(times), spanOf(costs)) > 12 ? 1.5 : Infinity;
  const x = makeAxis(times, [box.left, box.right], { unit: "seconds", count: frame.narrow ? 2 : 6, logBeyond });
  const y = makeAxis(costs, [box.bottom, box.top], { unit: "usd", logBeyond });
  drawBottomAxis(frame, x, "Training time");
  drawLeftAxis(frame, y, "Cost");
  const labels = new Labels(frame);
  drawLimits(frame, x, y, settings, labels);

  const front = shown.filter((row) => row.pareto).sort((a, b) => a.seconds - b.seconds);
  const path = front.map((row, i) => `${i ? "L" : "M"}${x.scale(row.seconds)},${y.scale(row.cost_usd)}`).join("");
  svg.append(s("path", { d: path, class: "front" }));

  for (const row of [...shown].reverse()) {
    const [cx, cy] = [x.scale(row.seconds), y.scale(row.cost_usd)];
    const kind = row.rank === 1 ? "best" : row.pareto ? "pareto" : "plain";
    const whiskers = s("g", { class: "whisker" });
    const [left, bottom] = [Math.max(box.left, x.scale(row.seconds_low)), Math.min(box.bottom, y.scale(row.cost_low))];
    if (kind !== "plain" || row.candidate.interval_only || shown.length <= MAX_WHISKERS) {
      whiskers.append(
        s("line", { x1: left, x2: x.scale(row.seconds_high), y1: cy, y2: cy }),
        s("line", { x1: cx, x2: cx, y1: bottom, y2: y.scale(row.cost_high) }),
      );
      labels.spare(left, x.scale(row.seconds_high), cy, cy);
      labels.spare(cx, cx, y.scale(row.cost_high), bottom);
    }
    const radius = kind === "best" ? 7 : 5;
    const reach = s("circle", { cx, cy, r: 13, class: "reach" });
    const basis = isUnprobed(row.candidate) ? ` ${row.candidate.basis}` : "";
    // Where a single number would be misleading, only the interval is drawn.
    const dot = row.candidate.interval_only ? null : s("circle", { cx, cy, r: radius });
    const mark = s("g", { class: `point ${kind}${basis}` }, whiskers, dot, reach);
    svg.append(tooltip.attach(mark, () => describe(row)));
    labels.avoid(cx, cy, radius);
  }
  const places = front.map((row) => [x.scale(row.seconds), y.scale(row.cost_usd)]);
  places.slice(1).forEach(([x2, y2], i) => labels.spareLine(places[i], [x2, y2]));
  const named = [rows[0], ...front, ...rows.slice(1, 12)].filter(Boolean);
  for (const row of new Set(named)) {
    const style = { class: row.rank === 1 ? "label strong" : "label" };
    const needed = row.pareto || row.rank === 1;
    // Where the whole label has no place, a shorter one may have.
    const texts = [machine(row), ...(needed ? [shortLabel(row.candidate, 26), shortLabel(row.candidate, 18)] : [])];
    texts.some((text) => labels.place(x.scale(row.seconds), y.scale(row.cost_usd), text, style, { needed }));
  }
  return shown.length;
}

function drawLimits({ svg, box }, x, y, { deadline_hours, budget_usd }, labels) {
  const deadline = deadline_hours === null ? NaN : x.scale(deadline_hours * SECONDS_PER_HOUR);
  if (deadline >= box.left && deadline <= box.right) {
    svg.append(
      s("line", { x1: deadline, x2: deadline, y1: box.top, y2: box.bottom, class: "limit" }),
      s("text", { x: deadline - 6, y: box.top + 10, "text-anchor": "end", class: "label" }, "deadline"),
    );
    labels.reserve(deadline - 6, box.top + 10, "deadline");
    labels.spare(deadline, deadline, box.top, box.bottom);
  }
  const budget = budget_usd === null ? NaN : y.scale(budget_usd);
  if (budget >= box.top && budget <= box.bottom) {
    svg.append(
      s("line", { x1: box.left, x2: box.right, y1: budget, y2: budget, class: "limit" }),
      s("text", { x: box.right, y: budget - 6, "text-anchor": "end", class: "label" }, "budget"),
    );
    labels.reserve(box.right, budget - 6, "budget");
    labels.spare(box.left, box.right, budget, budget);
  }
}

const slots = new Map();

/** The color of each line, which stays the same as long as the line is shown. */
function colorSlots(candidates) {
  for (const known of [...slots.keys()]) if (!candidates.includes(known)) slots.delete(known);
  for (const candidate of candidates) {
    const taken = new Set(slots.values());
    if (!slots.has(candidate)) slots.set(candidate, [0, 1, 2, 3, 4, 5, 6].find((slot) => !taken.has(slot)) ?? 6);
  }
  return (candidate) => slots.get(candidate);
}

/** Draw time or cost against epochs: a line per candidate, and a ring where the best candidate changes. */
function drawEpochs(host, candidates, { settings, field, most, leaders, best, caption, slotOf }) {
  const narrow = host.clientWidth < 480;
  const frame = makeFrame(host, {
    height: 340,
    label: `${caption} against the number of epochs, from 1 to ${most}`,
    margin: { left: 60, right: narrow ? 138 : 180, top: 34, bottom: 46 },
  });
  const { svg, box } = frame;
  const [unit, format, low, high] = field === "seconds"
    ? ["seconds", formatSeconds, "seconds_low", "seconds_high"] : ["usd", formatUsd, "cost_low", "cost_high"];
  const counts = sampleCounts(most, 60);
  const lines = candidates.map((candidate) => ({ candidate, points: counts.map((n) => evaluate(candidate, settings, n)) }));
  const x = countAxis(most, [box.left, box.right], narrow ? 3 : 5);
  const top = (candidate) => (candidate === best ? high : field);
  const values = lines.flatMap(({ candidate, points }) => points.map((point) => point[top(candidate)]));
  const y = makeAxis(values, [box.bottom, box.top], { unit, logBeyond: Infinity });
  drawBottomAxis(frame, x, "Epochs");
  drawLeftAxis(frame, y, "");
  const now = x.scale(settings.epochs);
  svg.append(
    s("line", { x1: now, x2: now, y1: box.top, y2: box.bottom, class: "now" }),
    s("text", { x: now, y: box.top - 6, "text-anchor": "middle", class: "label" }, `${formatCount(settings.epochs)} epochs`),
  );
  const names = lines.map(({ candidate }) => labelLines(candidate, narrow ? 18 : 24));
  const gap = Math.max(...names.map((name) => name.length)) * LINE + 2;
  const wanted = lines.map(({ points }) => y.scale(points.at(-1)[field]));
  const ends = spreadApart(wanted, gap, [box.top + 4, box.bottom + LINE - gap / 2]);
  lines.forEach(({ candidate, points }, i) => {
    const at = (point, key) => `${x.scale(point.epochs)},${y.scale(point[key])}`;
    const group = s("g", { class: `line c${slotOf(candidate)}${candidate === best ? " best" : ""}` });
    if (candidate === best) {
      const back = points.toReversed().map((point) => at(point, low));
      const band = [...points.map((point) => at(point, high)), ...back].join("L");
      group.append(s("path", { d: `M${band}Z`, class: "band" }));
    }
    const path = `M${points.map((point) => at(point, field)).join("L")}`;
    const end = points.at(-1)[field];
    group.append(
      s("path", { d: path, class: "stroke" }), s("path", { d: path, class: "reach" }),
      s("line", { x1: box.right, x2: box.right + 8, y1: y.scale(end), y2: ends[i], class: "leader" }),
      labelText({ x: box.right + 11, y: ends[i] + 4 }, names[i]),
    );
    const text = (value, epochs) => `${format(value)} at ${formatCount(epochs)} epochs`;
    const here = () => text(evaluate(candidate, settings)[field], settings.epochs);
    svg.append(tooltip.attach(group, () => [candidate.label, here(), text(end, most)]));
  });
  drawChanges(frame, x, y, { leaders, settings, field });
}

/** Draw a ring at each number of epochs from which another candidate is best. */
function drawChanges(frame, x, y, { leaders, settings, field }) {
  const labels = new Labels(frame);
  for (const { candidate, from } of leaders.slice(1)) {
    const [cx, cy] = [x.scale(from), y.scale(evaluate(candidate, settings, from)[field])];
    const ring = s("circle", { cx, cy, r: 6, class: "change" });
    frame.svg.append(tooltip.attach(ring, () => [candidate.label, `is best from ${formatCount(from)} epochs on`]));
    labels.avoid(cx, cy, 7);
    if (cx > frame.box.left + 30) labels.place(cx, cy, `from ${formatCount(from)}`, { class: "label" });
  }
}

/** About `count` whole numbers from 1 to `most`. */
function sampleCounts(most, count) {
  const step = Math.max(1, (most - 1) / count);
  const counts = new Set();
  for (let n = 1; n <= most; n += step) counts.add(Math.round(n));
  return [...counts.add(most)];
}

/** Draw the best candidates as bars that are split into the terms of their time or cost. */
function drawTerms(host, rows, field, terms) {
  const shown = rows.slice(0, MAX_BARS);
  const narrow = host.clientWidth < 480;
  const step = narrow ? 46 : 32;
  const frame = makeFrame(host, {
    height: 24 + shown.length * step,
    label: `${field === "seconds" ? "Time" : "Cost"} of the best ${shown.length} candidates, split by term`,
    margin: { left: narrow ? 2 : 190, right: 92, top: 6, bottom: 18 },
  });
  const { svg, box } = frame;
  const [low, high, format] = field === "seconds"
    ? ["seconds_low", "seconds_high", formatSeconds] : ["cost_low", "cost_high", formatUsd];
  const x = linearScale([0, Math.max(...shown.map((row) => row[high]), 1e-12)], [box.left, box.right]);
  shown.forEach((row, i) => {
    const top = box.top + i * step + (narrow ? 18 : 4);
    const height = narrow ? 18 : step - 12;
    const middle = top + height / 2;
    const parts = termSeconds(row);
    const group = s("g", { class: row.rank === 1 ? "bar best" : "bar" });
    let start = 0;
    for (const { id, title, slot } of terms) {
      const part = ((parts.get(id) ?? 0) / (row.seconds || 1)) * row[field];
      if (part <= 0) continue;
      const rect = s("rect", { x: x(start), y: top, width: x(start + part) - x(start), height, class: `t${slot}` });
      const partText = () => `${title}: ${format(part)} (${formatShare(part / row[field])})`;
      group.append(tooltip.attach(rect, () => [machine(row), partText()]));
      start += part;
    }
    const labelAt = narrow ? { x: 0, y: top - 5 } : { x: box.left - 10, y: middle + 4, "text-anchor": "end" };
    group.append(
      s("line", { x1: x(row[low]), x2: x(row[high]), y1: middle, y2: middle, class: "whisker" }),
      labelText(labelAt, narrow ? [shortLabel(row.candidate, 52)] : labelLines(row.candidate, 28)),
      s("text", { x: x(row[high]) + 8, y: middle + 4, class: "label value" }, format(row[field])),
    );
    svg.append(group);
  });
}

/** Draw the step readings of a profile, colored by kind of step. */
function drawSteps(host, steps) {
  const frame = makeFrame(host, {
    height: 280,
    label: `Step times of ${steps.title}`,
    margin: { left: 64, right: 90, top: 30, bottom: 46 },
  });
  const { svg, box } = frame;
  const x = countAxis(Math.max(1, steps.position.at(-1)), [box.left, box.right], 5);
  const y = makeAxis(steps.seconds, [box.bottom, box.top], { unit: "seconds", logBeyond: 8 });
  drawBottomAxis(frame, x, "Step");
  drawLeftAxis(frame, y, "Time per step");
  if (steps.steady_seconds) {
    const at = y.scale(steps.steady_seconds);
    svg.append(
      s("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "steady" }),
      s("text", { x: box.right + 6, y: at + 4, class: "label strong" }, formatSeconds(steps.steady_seconds)),
    );
  }
  steps.seconds.forEach((seconds, i) => {
    const [position, label] = [steps.position[i], steps.label[i]];
    const mark = s("circle", { cx: x.scale(position), cy: y.scale(seconds), r: 3.5, class: `step ${label}` });
    svg.append(tooltip.attach(mark, () => [formatSeconds(seconds), `step ${formatCount(position)}, ${label}`]));
  });
}

/**
 * Show values against a whole number, such as the batch size, in a panel: a line {name, slot, points} per machine. A point is
 * {x, y, low?, high?, basis?, note?}. `at` describes x in the tooltip, and `axis` is its title; `required` is the least value.
 */
function showCounts({ title, chart, box }, { caption, unit, lines, axis, at, required }) {
  title.textContent = caption;
  const points = lines.flatMap((line) => line.points);
  box.hidden = points.length === 0;
  const format = { seconds: formatSeconds, usd: formatUsd, share: formatShare, count: (value) => significant(value, 4) }[unit];
  for (const { name: line, points: some } of lines) {
    for (const point of some) {
      const value = `${format(point.y)} ${at(point.x)}`;
      const range = point.low === undefined ? "" : formatRange(point.low, point.high, format);
      const basis = BASIS_MARKS[point.basis] ?? "";
      point.text = () => [line || caption, value, range, point.note, basis].filter(Boolean);
    }
  }
  if (points.length) drawCounts(chart, { caption, unit, lines, points, axis, required });
}

function drawCounts(host, { caption, unit, lines, points, axis, required }) {
  const named = lines.some((line) => line.name);
  const narrow = host.clientWidth < 480;
  const right = !named ? 24 : narrow ? 108 : 136;
  const frame = makeFrame(host, {
    height: 300,
    label: `${caption} against ${axis === "GPUs" ? "the number of GPUs" : axis.toLowerCase()}`,
    margin: { left: 60, right, top: 20, bottom: 46 },
  });
  const { svg, box } = frame;
  const counts = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
  const ends = counts.length > 1 ? [counts[0], counts.at(-1)] : [counts[0] / 2, counts[0] * 2];
  const x = { scale: logScale(ends, [box.left + 12, box.right - 12]), ticks: thinned(counts, narrow ? 4 : 7), unit: "count" };
  const values = points.flatMap((point) => [point.low ?? point.y, point.high ?? point.y]).concat(required ?? []);
  // The values of a metric are close together, so that an axis from zero would hide their differences.
  const flat = unit === "count" && Math.min(...values) > 0.5 * Math.max(...values);
  const from = flat ? 0.98 * Math.min(...values) : 0;
  const y = makeAxis(values, [box.bottom, box.top], { unit, logBeyond: named ? 20 : Infinity, from });
  drawBottomAxis(frame, x, axis);
  drawLeftAxis(frame, y, "");
  if (required !== undefined) {
    const level = y.scale(required);
    svg.append(
      s("line", { x1: box.left, x2: box.right, y1: level, y2: level, class: "limit" }),
      s("text", { x: box.right, y: level - 6, "text-anchor": "end", class: "label" }, "required"),
    );
  }
  drawNamedLines(frame, x, y, lines, { most: narrow ? 14 : 18 });
}

function thinned(values, most) {
  const stride = Math.ceil(values.length / most);
  return values.filter((_, i) => i % stride === 0);
}
