// Utilization of the machines over time with the phases marked, and epoch curves.

const PHASE_SLOTS = { initialization: 0, "first step": 1, "steady steps": 2, validation: 3, "between epochs": 4 };

const beforeFindings = SECTIONS.findIndex(({ id }) => id === "findings");
SECTIONS.splice(beforeFindings, 0,
  {
    id: "usage",
    title: "Utilization",
    lede:
      "Shares of what there is: of the cores that the training may use, of the memory, of the GPUs. If the device " +
      "idles while steps wait for data, a faster device gains nothing.",
    shown: (report) => report.payload.page.usage.length > 0,
    build: buildUsage,
  },
  {
    id: "epoch-curves",
    title: "Epoch by epoch",
    lede: "Duration of each complete epoch, and the metric after it.",
    shown({ payload: { page: { epoch_curves: { times, metrics } } } }) {
      return times.some(({ points }) => points.length > 1) || metrics.length > 0;
    },
    build(host, report) {
      const { times, metrics, metric } = report.payload.page.epoch_curves;
      const panels = [[times, "Seconds of training in the epoch", "seconds"], [metrics, metric, "count"]];
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
  const words = h("p", { class: "lede", dir: "auto" });
  host.append(usage.length > 1 ? toolbar : "", chart, legend, words);
  const show = () => {
    const one = usage[Number(choice.value)];
    drawUsage(chart, one);
    tooltip.reach(chart);
    const phases = Object.keys(PHASE_SLOTS).filter((phase) => one.phases.some((band) => band.phase === phase));
    replace(legend, phases.map((phase) => h("li", null, h("i", { class: `phase p${PHASE_SLOTS[phase]}` }), phase)));
    words.textContent = `${one.title}: ${usageWords(one)}`;
  };
  choice.addEventListener("change", show);
  return show;
}

/** The chart in a sentence: the mean of each quantity while steps ran. */
function usageWords({ quantities, phases }) {
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
    height: 320, label: `Use of ${one.title} over time`, margin: { left: 56, right: narrow ? 92 : 130, top: 30, bottom: 46 },
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
  drawLeftAxis(frame, y, "In use");
  drawNamedLines(frame, x, y, one.quantities, {
    most: narrow ? 13 : 18,
    steps: true,
    text: (title, [at, share]) => [title, `${fixed(100 * share, 0)} % after ${formatSeconds(at)}`, phaseAt(one.phases, at)],
  });
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
  const words = unit === "seconds" ? formatSeconds : (value) => significant(value, 4);
  drawNamedLines(frame, x, y, lines, {
    most: narrow ? 16 : 21,
    text: (title, [epoch, value]) => [title, `${words(value)} in epoch ${formatCount(epoch)}`],
  });
}

/** Lines with a dot at each point, each named at its end; `text` gives the tooltip of a dot. */
function drawNamedLines({ svg, box }, x, y, lines, { most, text, steps = false }) {
  const shown = lines.slice(0, MOST_LINES).filter(({ points }) => points.length);
  const ends = spreadApart(shown.map(({ points }) => y.scale(points.at(-1)[1])), 15, [box.top + 4, box.bottom - 2]);
  shown.forEach(({ name: title, points }, slot) => {
    const at = ([px, py]) => [x.scale(px), y.scale(py)];
    const path = points.map((point, i) => {
      const [px, py] = at(point);
      return i === 0 ? `M${px},${py}` : steps ? `V${py}H${px}` : `L${px},${py}`;
    });
    const [endX, endY] = at(points.at(-1));
    const group = s("g", { class: `line c${slot}` },
      s("path", { d: path.join(""), class: "stroke" }),
      s("line", { x1: endX, x2: box.right + 6, y1: endY, y2: ends[slot], class: "leader" }),
      s("text", { x: box.right + 10, y: ends[slot] + 4, class: "label" }, shorten(title, most)));
    for (const point of points) {
      const [cx, cy] = at(point);
      group.append(tooltip.attach(s("circle", { cx, cy, r: points.length > 60 ? 2 : 3, class: "dot" }), () => text(title, point)));
    }
    svg.append(group);
  });
}
