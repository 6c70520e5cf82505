// The section on batch sizes, which is shown if the ranking was made with a convergence study.

SECTIONS.splice(1, 0, {
  id: "batches",
  title: "Batch size",
  lede:
    "A larger batch shortens an epoch, but the training may need more epochs and reach a worse metric. " +
    "Each machine is shown at its lowest cost.",
  shown: (report) => Boolean(report.payload.study),
  build(host, report) {
    const { study } = report.payload;
    const sizes = knownSizes(study);
    const panels = [panel(), panel(), panel(), panel()];
    host.append(h("div", { class: "pairs" }, panels.map(({ box }) => box)), studyTable(sizes, study.monitor));
    return (view) => {
      const series = batchSeries(view.rows).slice(0, MAX_LINES);
      const slotOf = colorSlots(series.map(({ instance_type }) => instance_type));
      const lines = ([value, low, high]) => series.map(({ instance_type, rows }) => ({
        name: instance_type,
        slot: slotOf(instance_type),
        points: rows.map((row) => ({
          x: row.candidate.batch_size,
          y: row[value],
          low: row[low],
          high: row[high],
          predicted: row.candidate.basis === "predicted",
        })),
      }));
      const known = (field) => [{ name: "", slot: 0, points: sizes.filter((size) => size[field] !== null).map((size) => ({
        x: size.batch_size,
        y: size[field],
        low: size[`${field}_low`] ?? size[field],
        high: size[`${field}_high`] ?? size[field],
      })) }];
      showBatches(panels[0], "Training time", "seconds", lines(TIME.fields));
      showBatches(panels[1], "Cost", "usd", lines(COST.fields));
      showBatches(panels[2], "Epochs until convergence", "count", known("epochs"));
      showBatches(panels[3], `Final ${study.monitor}`, "count", known("metric"), study.demands[study.monitor]);
    };
  },
});

/** All batch sizes of the study and of the candidates, ascending, including those that miss the required metric. */
function knownSizes({ measured, sizes }) {
  const all = new Map(measured.map((size) => [size.batch_size, { ...size, source: "measured" }]));
  sizes.forEach((size) => all.set(size.batch_size, size));
  return [...all.values()].sort((a, b) => a.batch_size - b.batch_size);
}

/** The cheapest row of each instance type and batch size, in the order of the ranking. */
function batchSeries(rows) {
  const series = new Map();
  for (const row of rows) {
    const { instance_type, batch_size } = row.candidate;
    if (!series.has(instance_type)) series.set(instance_type, new Map());
    const sizes = series.get(instance_type);
    if (!sizes.has(batch_size) || row.cost_usd < sizes.get(batch_size).cost_usd) sizes.set(batch_size, row);
  }
  const ascending = (a, b) => a.candidate.batch_size - b.candidate.batch_size;
  return [...series].map(([instance_type, sizes]) => ({ instance_type, rows: [...sizes.values()].sort(ascending) }));
}

function showBatches({ title, chart, box }, caption, unit, lines, required) {
  title.textContent = caption;
  const points = lines.flatMap((line) => line.points);
  box.hidden = points.length === 0;
  const format = { seconds: formatSeconds, usd: formatUsd, count: (value) => significant(value, 4) }[unit];
  for (const { name: machine, points: some } of lines) {
    for (const point of some) {
      const value = `${format(point.y)} at batch ${formatCount(point.x)}`;
      const basis = point.predicted ? "never probed" : "";
      point.text = () => [machine || caption, value, formatRange(point.low, point.high, format), basis].filter(Boolean);
    }
  }
  if (points.length) drawBatches(chart, { caption, unit, lines, points, required });
}

/** Draw values against the batch size with intervals, a line per machine. */
function drawBatches(host, { caption, unit, lines, points, required }) {
  const named = lines.some((line) => line.name);
  const narrow = host.clientWidth < 480;
  const right = !named ? 24 : narrow ? 108 : 136;
  const frame = makeFrame(host, {
    height: 300,
    label: `${caption} against batch size`,
    margin: { left: 60, right, top: 20, bottom: 46 },
  });
  const { svg, box } = frame;
  const sizes = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
  const ends = sizes.length > 1 ? [sizes[0], sizes.at(-1)] : [sizes[0] / 2, sizes[0] * 2];
  const x = { scale: logScale(ends, [box.left + 12, box.right - 12]), ticks: thinned(sizes, narrow ? 4 : 7), unit: "count" };
  const values = points.flatMap((point) => [point.low, point.high]).concat(required ?? []);
  // The values of a metric are close together, so that an axis from zero would hide their differences.
  const flat = unit === "count" && Math.min(...values) > 0.5 * Math.max(...values);
  const from = flat ? 0.98 * Math.min(...values) : 0;
  const y = makeAxis(values, [box.bottom, box.top], { unit, logBeyond: named ? 20 : Infinity, from });
  drawBottomAxis(frame, x, "Batch size");
  drawLeftAxis(frame, y, "");
  if (required !== undefined) {
    const at = y.scale(required);
    svg.append(
      s("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "limit" }),
      s("text", { x: box.right, y: at - 6, "text-anchor": "end", class: "label" }, "required"),
    );
  }
  drawNamedLines(frame, x, y, lines, { most: narrow ? 14 : 18 });
}

function thinned(values, most) {
  const stride = Math.ceil(values.length / most);
  return values.filter((_, i) => i % stride === 0);
}

/** A table of epochs, metric and their source for each batch size. */
function studyTable(sizes, monitor) {
  const cell = (text, extra) => h("td", extra ?? null, text);
  const metric = (value) => (value === null ? "unknown" : significant(value, 4));
  const range = ({ epochs_low, epochs_high }) => formatRange(epochs_low, epochs_high, formatEpochs);
  const head = ["Batch size", "Epochs", `Final ${monitor}`].map((text) => h("th", { scope: "col" }, text));
  const body = sizes.map((size) => h("tr", null,
    cell(formatCount(size.batch_size)),
    cell([formatEpochs(size.epochs), h("span", { class: "sub" }, range(size))]),
    cell(metric(size.metric)),
    cell(name(size.source), { class: "text" })));
  const from = h("th", { scope: "col", class: "text" }, "Source");
  return h("div", { class: "scroll" }, h("table", null, h("thead", null, h("tr", null, head, from)), h("tbody", null, body)));
}
