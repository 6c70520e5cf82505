// The price history of the recommended GPU.

SECTIONS.splice(SECTIONS.findIndex(({ id }) => id === "findings"), 0, {
  id: "prices",
  title: "Price history",
  lede:
    "Median price per GPU-hour over the regions of a provider, by month. The past says how much prices move, not where " +
    "they will be.",
  shown: (report) => Boolean(report.payload.page.prices),
  build(host, report) {
    const history = report.payload.page.prices;
    const { box, title, chart } = panel();
    title.textContent = `${history.gpu}, USD per GPU-hour`;
    host.append(box, h("ul", null, history.trends.map((trend) => h("li", { dir: "auto" }, trend))));
    return () => {
      drawPrices(chart, history);
      tooltip.reach(chart);
    };
  },
});

function drawPrices(host, { gpu, months, lines }) {
  const narrow = host.clientWidth < 480;
  const frame = makeFrame(host, {
    height: 300, label: `Prices of the ${gpu} by month`, margin: { left: 60, right: narrow ? 112 : 150, top: 20, bottom: 46 },
  });
  const { svg, box } = frame;
  const last = Math.max(1, months.length - 1);
  const x = { scale: linearScale([0, last], [box.left, box.right]), ticks: [], unit: "count" };
  const y = makeAxis(lines.flatMap(({ points }) => points.map(([, usd]) => usd)), [box.bottom, box.top], { unit: "usd" });
  drawBottomAxis(frame, x, "");
  const stride = Math.ceil(months.length / (narrow ? 3 : 6));
  const labels = months.map((month, i) =>
    (i % stride ? null : s("text", { x: x.scale(i), y: box.bottom + 18, "text-anchor": "middle" }, month)));
  svg.append(s("g", { class: "axis" }, labels.filter(Boolean)));
  drawLeftAxis(frame, y, "");
  const text = (title, i, usd) => [title, `${formatUsd(usd)} per GPU-hour`, months[i]];
  drawNamedLines(frame, x, y, asLines(lines, text), { most: narrow ? 16 : 21 });
}
