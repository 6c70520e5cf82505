// Utilization of the machines over time with the phases of the training, and epoch curves.

const PHASE_SLOTS = { initialization: 0, "first step": 1, "steady steps": 2, validation: 3, "between epochs": 4 };

const beforeFindings = SECTIONS.findIndex(({ id }) => id === "findings");
SECTIONS.splice(beforeFindings, 0,
  {
    id: "usage",
    title: "Utilization",
    lede:
      "Utilization of the CPU cores that the training may use, of memory and of GPUs. If a GPU is idle while steps wait " +
      "for data, a faster GPU does not shorten the training.",
    shown: (report) => report.payload.page.usage.length > 0,
    build: buildUsage,
  },
  {
    id: "epoch-curves",
    title: "Epoch by epoch",
    lede: "Training time of each complete epoch, and the metric after each epoch.",
    shown({ payload: { page: { epoch_curves: { times, metrics } } } }) {
      return times.some(({ points }) => points.length > 1) || metrics.length > 0;
    },
    build(host, report) {
      const { times, metrics, metric } = report.payload.page.epoch_curves;
      const panels = [[times, "Training time per epoch", "seconds"], [metrics, metric, "count"]];
      const drawn = panels.filter(([lines]) => lines.length).map((plan) => [panel(), ...plan]);
      host.append(h("div", { class: "pairs" }, drawn.map(([{ box }]) => box)));
      return () => {
        for (const [{ title, chart }, lines, caption, unit] of drawn) {
          title.textContent = caption;
          drawEpochCurves(chart, { lines, caption, unit });
          tooltip.reach(chart);
        }
      };
    },
  });

function buildUsage(host, report) {
  const { usage } = report.payload.page;
  const options = usage.map(({ title }, i) => h("option", { value: i }, title));
  const choice = h("select", { id: "sampled", "aria-label": "Machine" }, options);
  const toolbar = h("div", { class: "toolbar" }, h("label", { class: "check", for: "sampled" }, "Machine", choice));
  const chart = h("div", { class: "chart-host" });
  const legend = h("ul", { class: "legend", "aria-label": "Phases" });
  const note = h("p", { class: "lede", dir: "auto" });
  host.append(usage.length > 1 ? toolbar : "", chart, legend, note);
  const show = () => {
    const one = usage[Number(choice.value)];
    drawUsage(chart, one);
    tooltip.reach(chart);
    const phases = Object.keys(PHASE_SLOTS).filter((phase) => one.phases.some((band) => band.phase === phase));
    replace(legend, phases.map((phase) => h("li", null, h("i", { class: `phase p${PHASE_SLOTS[phase]}` }), phase)));
    note.textContent = `${one.title}: ${usageText(one)}`;
  };
  choice.addEventListener("change", show);
  return show;
}

/** A sentence with the mean of each quantity during steady steps. */
function usageText({ quantities, phases }) {
  const steady = phases.filter(({ phase }) => phase === "steady steps");
  const during = (at) => steady.some(({ begin, end }) => at > begin && at <= end);
  const means = quantities.map(({ name: what, points }) => {
    const seen = points.filter(([at]) => !steady.length || during(at)).map(([, share]) => share);
    return seen.length ? `${what} ${fixed(100 * seen.reduce((a, b) => a + b, 0) / seen.length, 0)} %` : null;
  });
  return `${steady.length ? "during steady steps" : "on average"} ${means.filter(Boolean).join(", ")}.`;
}

function drawUsage(host, one) {
  const narrow = host.clientWidth < 480;
  const frame = makeFrame(host, {
    height: 320, label: `Utilization of ${one.title} over time`, margin: { left: 56, right: narrow ? 92 : 130, top: 30, bottom: 46 },
  });
  const { svg, box } = frame;
  const last = Math.max(...one.phases.map(({ end }) => end), 1e-3);
  const ticks = linearTicks(0, last, narrow ? 3 : 6, TIME_STEPS);
  const x = { scale: linearScale([0, last], [box.left, box.right]), ticks, unit: "seconds" };
  const y = { scale: linearScale([0, 1], [box.bottom, box.top]), ticks: [0, 0.25, 0.5, 0.75, 1], unit: "share" };
  for (const { phase, begin, end } of one.phases) {
    const width = Math.max(0.5, x.scale(end) - x.scale(begin));
    svg.append(s("rect", { x: x.scale(begin), y: box.top, width, height: box.bottom - box.top, class: `phase p${PHASE_SLOTS[phase]}` }));
  }
  drawBottomAxis(frame, x, "Since the start of the fit");
  drawLeftAxis(frame, y, "Utilization");
  const text = (title, at, share) => [title, `${fixed(100 * share, 0)} % after ${formatSeconds(at)}`, phaseAt(one.phases, at)];
  drawNamedLines(frame, x, y, asLines(one.quantities, text), { most: narrow ? 13 : 18, steps: true });
}

function phaseAt(phases, at) {
  return phases.find(({ begin, end }) => at > begin && at <= end)?.phase ?? "";
}

function drawEpochCurves(host, { lines, caption, unit }) {
  const narrow = host.clientWidth < 480;
  const frame = makeFrame(host, {
    height: 300, label: `${caption}, epoch by epoch`, margin: { left: 60, right: narrow ? 112 : 150, top: 20, bottom: 46 },
  });
  const { box } = frame;
  const epochs = lines.flatMap(({ points }) => points.map(([epoch]) => epoch));
  const values = lines.flatMap(({ points }) => points.map(([, value]) => value));
  const x = countAxis(Math.max(2, ...epochs), [box.left, box.right], narrow ? 3 : 5);
  x.ticks = x.ticks.filter((tick) => Number.isInteger(tick));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const from = unit === "seconds" ? 0 : least - 0.05 * (most - least || Math.abs(most) || 1);
  const to = most + 0.06 * (most - from || 1);
  const y = { scale: linearScale([from, to], [box.bottom, box.top]), ticks: linearTicks(from, to, 5), unit };
  drawBottomAxis(frame, x, "Epoch");
  drawLeftAxis(frame, y, "");
  const format = unit === "seconds" ? formatSeconds : (value) => significant(value, 4);
  const text = (title, epoch, value) => [title, `${format(value)} in epoch ${formatCount(epoch)}`];
  drawNamedLines(frame, x, y, asLines(lines, text), { most: narrow ? 16 : 21 });
}

/** Convert lines of {name, points: [[x, y], ...]} for drawNamedLines. `text` returns the tooltip of a point. */
function asLines(lines, text) {
  return lines.slice(0, MAX_LINES).map(({ name: title, points }, slot) => ({
    name: title, slot, points: points.map(([x, y]) => ({ x, y, text: () => text(title, x, y) })),
  }));
}
