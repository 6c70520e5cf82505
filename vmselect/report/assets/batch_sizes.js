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
          basis: row.candidate.basis,
        })),
      }));
      const known = (field) => [{ name: "", slot: 0, points: sizes.filter((size) => size[field] !== null).map((size) => ({
        x: size.batch_size,
        y: size[field],
        low: size[`${field}_low`] ?? size[field],
        high: size[`${field}_high`] ?? size[field],
      })) }];
      const by = { axis: "Batch size", at: (size) => `at batch ${formatCount(size)}` };
      showCounts(panels[0], { caption: "Training time", unit: "seconds", lines: lines(TIME.fields), ...by });
      showCounts(panels[1], { caption: "Cost", unit: "usd", lines: lines(COST.fields), ...by });
      showCounts(panels[2], { caption: "Epochs until convergence", unit: "count", lines: known("epochs"), ...by });
      const required = study.required[study.monitor];
      showCounts(panels[3], { caption: `Final ${study.monitor}`, unit: "count", lines: known("metric"), required, ...by });
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
