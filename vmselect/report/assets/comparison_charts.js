// Comparison charts. comparison_charts.py provides the numbers, in the unit of the axis, and the tooltips.

const PLOTS = { boxes: drawBoxes, intervals: drawIntervals, lines: drawLines, series: drawSeries };
const ROW = { wide: 40, narrow: 58 };

/** An axis that covers all `values` with a margin and need not begin at zero. */
function valueAxis(values, range, count) {
  const known = values.filter(Number.isFinite);
  const [least, most] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
  const room = (most - least) * 0.05 || Math.abs(most) * 0.05 || 1;
  const domain = [least - room, most + room];
  return { scale: linearScale(domain, range), ticks: linearTicks(...domain, count), unit: "count" };
}

/** A frame with a row for each of `plot.rows`, whose name is on the left or, on narrow screens, above. */
function makeRows(host, plot) {
  const narrow = host.clientWidth < 480;
  const step = narrow ? ROW.narrow : ROW.wide;
  const longest = Math.max(...plot.rows.map(({ name }) => [...name].length));
  const left = narrow ? 6 : Math.min(300, 24 + 7 * Math.min(longest, 40));
  const frame = makeFrame(host, {
    height: 58 + plot.rows.length * step,
    label: plot.label,
    margin: { left, right: 24, top: 8, bottom: 46 },
  });
  const middle = (i) => frame.box.top + (i + (narrow ? 0.68 : 0.5)) * step;
  const label = (row, i) => {
    const at = narrow ? { x: frame.box.left, y: middle(i) - 18 } : { x: left - 12, y: middle(i) + 4, "text-anchor": "end" };
    return s("text", { ...at, class: "label", direction: "auto" }, shorten(row.name, 40));
  };
  return { ...frame, middle, label, half: 12 };
}

function drawBoxes(host, plot) {
  const frame = makeRows(host, plot);
  const { svg, box, middle, half } = frame;
  const values = plot.rows.flatMap(({ edges }) => edges);
  const x = valueAxis(values, [box.left, box.right], frame.narrow ? 4 : 7);
  drawBottomAxis(frame, x, plot.axis);
  plot.rows.forEach((row, i) => {
    const y = middle(i);
    const [least, low, median, high, most] = row.edges.map(x.scale);
    const group = s("g", { class: "box" });
    if (row.points.length > 1) {
      group.append(
        s("line", { x1: least, x2: most, y1: y, y2: y, class: "reachline" }),
        s("rect", { x: low, y: y - half, width: Math.max(1, high - low), height: 2 * half, rx: 2 }),
        s("line", { x1: median, x2: median, y1: y - half, y2: y + half, class: "median" }),
      );
    }
    for (const { value, offset, text } of row.points) {
      const mark = s("circle", { cx: x.scale(value), cy: y + offset * 2 * half, r: 4, class: "run" });
      group.append(tooltip.attach(mark, () => text));
    }
    svg.append(frame.label(row, i), group);
  });
}

function drawIntervals(host, plot) {
  const frame = makeRows(host, plot);
  const { svg, box, middle } = frame;
  const values = plot.rows.flatMap(({ value, low, high }) => [value, low, high]).filter((value) => value !== null);
  const x = valueAxis([...values, 0], [box.left, box.right], frame.narrow ? 4 : 7);
  drawBottomAxis(frame, x, plot.axis);
  svg.append(s("line", { x1: x.scale(0), x2: x.scale(0), y1: box.top, y2: box.bottom, class: "zero" }));
  plot.rows.forEach((row, i) => {
    const y = middle(i);
    svg.append(frame.label(row, i));
    if (row.value === null) return void svg.append(s("text", { x: x.scale(0) + 8, y: y + 4 }, "unknown"));
    const group = s("g", { class: `interval c${row.slot}` });
    if (row.low !== null && row.high !== null) {
      const [from, to] = [x.scale(row.low), x.scale(row.high)];
      group.append(
        s("line", { x1: from, x2: to, y1: y, y2: y, class: "stroke" }),
        s("path", { d: `M${from},${y - 5}v10M${to},${y - 5}v10`, class: "stroke" }),
      );
    }
    group.append(s("circle", { cx: x.scale(row.value), cy: y, r: 5.5, class: "dot" }),
      s("circle", { cx: x.scale(row.value), cy: y, r: 13, class: "reach" }));
    svg.append(tooltip.attach(group, () => row.text));
  });
}

function drawLines(host, plot) {
  const narrow = host.clientWidth < 480;
  const frame = makeFrame(host, {
    height: 280, label: plot.label, margin: { left: 60, right: narrow ? 116 : 150, top: 30, bottom: 34 },
  });
  const { svg, box } = frame;
  const values = plot.lines.flatMap(({ points }) => points.flatMap(({ value, low, high }) => [value, low, high]));
  const y = valueAxis(values, [box.bottom, box.top], 5);
  drawLeftAxis(frame, y, plot.axis);
  const step = (box.right - box.left) / plot.levels.length;
  const at = (level) => box.left + (plot.levels.indexOf(level) + 0.5) * step;
  const most = Math.max(3, Math.floor(step / 7));
  plot.levels.forEach((level) => {
    svg.append(s("text", { x: at(level), y: box.bottom + 20, "text-anchor": "middle" }, shorten(level, most)));
  });
  svg.append(s("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis base" }));
  const lines = plot.lines.map(({ points, ...line }) => ({
    ...line,
    points: points.map(({ level, value, low, high, text }) => ({ x: level, y: value, low, high, text: () => text })),
  }));
  drawNamedLines(frame, { scale: at }, y, lines, { most: narrow ? 16 : 21 });
}

function drawSeries(host, plot) {
  const frame = makeFrame(host, { height: 240, label: plot.label, margin: { left: 60, right: 20, top: 30, bottom: 46 } });
  const { svg, box } = frame;
  const x = countAxis(Math.max(1, plot.points.at(-1).position), [box.left, box.right], 5);
  const y = valueAxis(plot.points.map(({ value }) => value), [box.bottom, box.top], 5);
  drawBottomAxis(frame, x, "Reading");
  drawLeftAxis(frame, y, plot.axis);
  for (const { position, value, text } of plot.points) {
    const mark = s("circle", { cx: x.scale(position), cy: y.scale(value), r: 3, class: "step" });
    svg.append(tooltip.attach(mark, () => text));
  }
  const path = plot.points.map(({ position, level }, i) => {
    const [px, py] = [x.scale(position), y.scale(level)];
    return i ? `H${px}V${py}` : `M${px},${py}`;
  });
  svg.append(s("path", { d: path.join(""), class: "level" }));
}
