// The section on the number of GPUs, which is shown if a GPU model was ranked with several numbers of GPUs.

SECTIONS.splice(1, 0, {
  id: "gpus",
  title: "Number of GPUs",
  lede:
    "The fastest and the cheapest candidate with each number of GPUs. The efficiency is the speed-up over one GPU, divided by " +
    "the number of GPUs. Hollow points were never probed.",
  shown: (report) => scaledModels(report.candidates.map((candidate) => ({ candidate, seconds: 1, cost_usd: 1 }))).length > 0,
  empty: ({ rows }) => !scaledModels(rows).length,
  build(host) {
    const sentence = h("p");
    const panels = [panel(), panel(), panel()];
    host.append(sentence, h("div", { class: "pairs" }, panels.map(({ box }) => box)));
    return (view) => {
      const models = scaledModels(view.rows).slice(0, MAX_LINES);
      if (!models.length) return;
      sentence.textContent = scalingText(view.rows);
      const lines = (point) => models.map(({ gpu, counts }, slot) => ({ name: gpu, slot, points: counts.map(point) }));
      const point = (row, values) => (
        { ...values, basis: row.candidate.basis, note: row.candidate.label }
      );
      const measured = (kind, [value, low, high]) => lines(({ gpus, [kind]: row }) => (
        point(row, { x: gpus, y: row[value], low: row[low], high: row[high] })
      ));
      const rated = lines(({ gpus, efficiency, fastest }) => point(fastest, { x: gpus, y: efficiency }));
      const known = rated.map((line) => ({ ...line, points: line.points.filter(({ y }) => y !== null) }));
      const by = { axis: "GPUs", at: (gpus) => `with ${formatCount(gpus)} GPU${gpus === 1 ? "" : "s"}` };
      showCounts(panels[0], { caption: "Training time", unit: "seconds", lines: measured("fastest", TIME.fields), ...by });
      showCounts(panels[1], { caption: "Cost", unit: "usd", lines: measured("cheapest", COST.fields), ...by });
      showCounts(panels[2], { caption: "Efficiency of the fastest", unit: "share", lines: known, ...by });
    };
  },
});
