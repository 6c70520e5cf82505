// The ranking as a table that sorts, filters, and shows some rows at a time, so that thousands of rows stay fast.

const PAGE_ROWS = 50;

/** The columns: `value` is the sort key, `cell` the content. Columns with `wide` are omitted on narrow screens. */
const COLUMNS = [
  { id: "rank", title: "#", value: (row) => row.rank, cell: (row) => String(row.rank) },
  { id: "machine", title: "Machine", text: true, value: (row) => row.candidate.instance_type, cell: machineCell },
  { id: "gpu", title: "GPU", text: true, wide: true, value: gpuText, cell: (row) => name(gpuText(row)) },
  {
    id: "seconds", title: "Time", value: (row) => row.seconds,
    cell: (row) => valueCell(row.seconds, row.seconds_low, row.seconds_high, formatSeconds),
  },
  {
    id: "cost", title: "Cost", value: (row) => row.cost_usd,
    cell: (row) => valueCell(row.cost_usd, row.cost_low, row.cost_high, formatUsd),
  },
  ...[ENERGY, CO2].map((measure) => ({
    id: measure.name, title: measure.title, asked: true, value: (row) => (Number.isNaN(row[measure.fields[0]]) ? Infinity : row[measure.fields[0]]),
    cell: (row) => valueCell(...measure.fields.map((field) => row[field]), measure.format),
  })),
  { id: "price", title: "USD per hour", wide: true, value: (row) => row.candidate.usd_per_hour, cell: priceCell },
  { id: "chance", title: "Best", value: (row) => -row.chance, cell: (row) => formatChance(row.chance) },
  { id: "score", title: "Score", wide: true, value: (row) => row.score, cell: (row) => fixed(row.score, 2) },
];

function machineCell(row) {
  const { candidate } = row;
  const where = [
    candidate.provider, candidate.region, marketName(candidate.market),
    candidate.batch_size ? `batch ${candidate.batch_size}` : null, candidate.varied,
    candidate.studied ? `${formatEpochs(row.epochs)} epochs` : null,
    candidate.metric,
  ];
  const badges = [
    row.tied && row.rank > 1 ? h("span", { class: "badge tie" }, "may be best") : null,
    candidate.basis === "predicted" ? h("span", { class: "badge predicted" }, "never probed") : null,
    row.pareto ? h("span", { class: "badge front" }, "Pareto") : null,
    candidate.warnings ? h("span", { class: "badge warning" }, "see findings") : null,
  ];
  // The spaces are for copied text and screen readers.
  const below = h("span", { class: "sub", dir: "auto" }, where.filter(Boolean).join(" · "));
  const bound = candidate.bound ? h("span", { class: "sub", dir: "auto" }, candidate.bound) : null;
  return [name(candidate.instance_type, { class: "who" }), badges.map((badge) => [" ", badge]), below, bound];
}

function valueCell(value, low, high, format) {
  const [from, to] = [format(low), format(high)];
  const range = from === to ? [] : [h("span", null, `${from} –`), " ", h("span", null, to)];
  return [format(value), h("span", { class: "sub" }, range)];
}

function priceCell({ candidate }) {
  return [formatUsd(candidate.usd_per_hour), h("span", { class: "sub" }, candidate.price_date ?? "")];
}

function gpuText({ candidate: { gpu_model, gpu_count } }) {
  if (!gpu_model) return "none";
  return gpu_count > 1 ? `${gpu_count} × ${gpu_model}` : gpu_model;
}

/** Build the ranking table in `host`. Returns the function that shows new rows. */
function buildTable(host, { initial }) {
  const columns = COLUMNS.filter(({ asked }) => !asked || measuresOf(initial).includes(CO2));
  const shown = { column: "rank", ascending: true, filter: "", front: false, most: PAGE_ROWS, rows: [] };
  const head = h("tr");
  const body = h("tbody");
  const count = h("span", { class: "count", role: "status" });
  const more = h("div", { class: "more" });
  const hint = { placeholder: "Filter: machine, GPU, region", "aria-label": "Filter the table" };
  const filter = h("input", { type: "search", id: "filter", ...hint });
  const front = h("input", { type: "checkbox", id: "front" });
  filter.addEventListener("input", () => refresh({ filter: filter.value, most: PAGE_ROWS }));
  front.addEventListener("change", () => refresh({ front: front.checked, most: PAGE_ROWS }));

  const headers = columns.map((column) => {
    const button = h("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const same = shown.column === column.id;
      refresh({ column: column.id, ascending: same ? !shown.ascending : true });
    });
    return h("th", { scope: "col", class: classes(column), "data-column": column.id, "aria-sort": "none" }, button);
  });
  head.append(...headers);
  host.append(
    h("div", { class: "toolbar" }, filter, h("label", { class: "check" }, front, "Show only the Pareto front"), count),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Ranking table" },
      h("table", { id: "table" }, h("thead", null, head), body)),
    more,
  );

  function refresh(changes) {
    Object.assign(shown, changes);
    const chosen = chooseRows(shown);
    headers.forEach((header, i) => {
      const sorted = columns[i].id === shown.column ? (shown.ascending ? "ascending" : "descending") : "none";
      header.setAttribute("aria-sort", sorted);
    });
    replace(body, chosen.slice(0, shown.most).map((row) => tableRow(row, columns)));
    const [some, total] = [chosen.length, shown.rows.length];
    const counted = `${formatCount(total)} candidate${total === 1 ? "" : "s"}`;
    count.textContent = some === total ? counted : `${formatCount(some)} of ${counted}`;
    const left = some - shown.most;
    const button = (text, most) => h("button", { type: "button", onclick: () => refresh({ most }) }, text);
    replace(more,
      left > 0 ? button(`Show ${formatCount(Math.min(200, left))} more`, shown.most + 200) : null,
      left > 200 ? button(`Show all ${formatCount(some)}`, Infinity) : null,
    );
  }
  return (rows) => refresh({ rows });
}

/** The rows that pass the filter, in the chosen order. */
function chooseRows({ rows, column, ascending, filter, front }) {
  const wanted = filter.trim().toLowerCase();
  const { value } = COLUMNS.find(({ id }) => id === column);
  const compare = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : a.rank - b.rank);
  return rows
    .filter((row) => (!front || row.pareto) && (!wanted || row.candidate.searchable.includes(wanted)))
    .sort((a, b) => (ascending ? compare(a, b) : compare(b, a)));
}

function tableRow(row, columns) {
  const cells = columns.map((column) => h("td", { class: classes(column) }, column.cell(row)));
  return h("tr", { class: [row.rank === 1 ? "best" : "", row.candidate.basis === "predicted" ? "predicted" : ""].join(" ").trim() || null }, cells);
}

function classes({ text, wide }) {
  return [text ? "text" : "", wide ? "wide-only" : ""].join(" ").trim() || null;
}
