// The ranking as a table that sorts, filters, and shows some rows at a time, so that thousands of rows stay fast.

const PAGE_ROWS = 50;

/** What the cells say about all rows: names of providers, and whether markets and batch sizes differ. */
const context = { providers: {}, severalMarkets: true, severalSizes: true };

/** What the words in the table mean. */
const ABOUT = {
  best: "chance of being the best of all candidates",
  score: "weighted ratio to the best values; 1.00 is the best possible",
  pareto: "no candidate is both faster and cheaper",
  findings: "has a warning, which Findings below explain",
};

/** The columns: `value` is the sort key, `cell` the content. Columns with `wide` are omitted on narrow screens. */
const COLUMNS = [
  { id: "rank", title: "#", wide: true, value: (row) => row.rank, cell: (row) => String(row.rank) },
  { id: "machine", title: "Machine", text: true, value: (row) => row.candidate.instance_type, cell: machineCell },
  { id: "gpu", title: "GPU", text: true, wide: true, value: gpuText, cell: (row) => name(gpuText(row)) },
  {
    id: "seconds", title: "Time", value: (row) => row.seconds,
    cell: (row) => [basisMark(row.candidate.basis), valueCell(row, TIME)],
  },
  {
    id: "cost", title: "Cost", value: (row) => row.cost_usd,
    cell: (row) => valueCell(row, COST),
  },
  ...[ENERGY, CO2].map((measure) => ({
    id: measure.name, title: measure.title, asked: true, value: (row) => (Number.isNaN(row[measure.fields[0]]) ? Infinity : row[measure.fields[0]]),
    cell: (row) => valueCell(row, measure),
  })),
  { id: "price", title: "USD per hour", wide: true, value: (row) => row.candidate.usd_per_hour, cell: priceCell },
  { id: "chance", title: "Best", about: ABOUT.best, value: (row) => -row.chance, cell: chanceCell },
  { id: "score", title: "Score", about: ABOUT.score, wide: true, value: (row) => row.score, cell: (row) => fixed(row.score, 2) },
];

function machineCell(row) {
  const { candidate } = row;
  const where = [
    context.providers[candidate.provider] ?? candidate.provider, placeText(candidate),
    context.severalMarkets ? marketName(candidate.market) : null,
    candidate.batch_size && context.severalSizes ? `batch ${candidate.batch_size}` : null, candidate.varied,
    candidate.studied ? `${formatEpochs(row.epochs)} epochs` : null,
    candidate.metric,
  ];
  const badges = [
    row.tied && row.rank > 1 ? h("span", { class: "badge tie" }, "may be best") : null,
    row.pareto ? h("span", { class: "badge front", title: ABOUT.pareto }, "Pareto") : null,
    candidate.warnings ? h("span", { class: "badge warning", title: ABOUT.findings }, "see findings") : null,
  ];
  // The spaces are for copied text and screen readers.
  const below = h("span", { class: "sub", dir: "auto" }, where.filter(Boolean).join(" · "));
  const bound = candidate.bound ? h("span", { class: "sub", dir: "auto" }, candidate.bound) : null;
  const gpu = candidate.gpu_model ? h("span", { class: "sub narrow-only" }, name(gpuText(row))) : null;
  return [name(candidate.instance_type, { class: "who" }), gpu, badges.map((badge) => [" ", badge]), below, bound];
}

function placeText({ region, regions_compared: count }) {
  return count > 1 ? `${region}, cheapest of ${count} regions` : region;
}

function valueCell(row, measure) {
  const { fields, format } = measure;
  const [value, from, to] = fields.map((field) => format(row[field]));
  if (row.candidate.interval_only) return [h("span", { class: "range" }, `${from} –`), " ", h("span", { class: "range" }, to)];
  const range = from === to ? [] : [h("span", null, `${from} –`), " ", h("span", null, to)];
  return [value, h("span", { class: "sub" }, range)];
}

function priceCell({ candidate }) {
  return [formatUsd(candidate.usd_per_hour), h("span", { class: "sub" }, candidate.price_date ?? "")];
}

/** The probability of being best, or a sign that it is being computed. */
function chanceCell({ chance }) {
  return chance === null ? h("span", { class: "sub" }, PENDING) : formatChance(chance);
}

function gpuText({ candidate: { gpu_model, gpu_count } }) {
  if (!gpu_model) return "none";
  // A share of a GPU is less than one.
  return gpu_count && gpu_count !== 1 ? `${gpu_count} × ${gpu_model}` : gpu_model;
}

/** Build the ranking table in `host`. Returns functions that show new rows, and their probabilities once they are known. */
function buildTable(host, { initial, payload }) {
  context.providers = payload.page.providers;
  const columns = COLUMNS.filter(({ asked }) => !asked || measuresOf(initial).includes(CO2));
  const shown = { column: "rank", ascending: true, most: PAGE_ROWS, rows: [] };
  const head = h("tr");
  const body = h("tbody");
  const count = h("span", { class: "count", role: "status" });
  const more = h("div", { class: "more" });
  const toolbar = h("div", { class: "toolbar" });
  const filters = buildFilters(toolbar, () => refresh({ most: PAGE_ROWS }), context.providers);
  const legend = h("ul", { class: "legend", "aria-label": "Where the times come from" });

  const headers = columns.map((column) => {
    const button = h("button", { type: "button", title: column.about ?? null }, column.title);
    button.addEventListener("click", () => {
      const same = shown.column === column.id;
      refresh({ column: column.id, ascending: same ? !shown.ascending : true });
    });
    return h("th", { scope: "col", class: classes(column), "data-column": column.id, "aria-sort": "none" }, button);
  });
  head.append(...headers);
  const meanings = h("p", { class: "meanings" });
  host.append(
    toolbar,
    h("div", { class: "toolbar under" }, legend, count),
    meanings,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Ranking table" },
      h("table", { id: "table" }, h("thead", null, head), body)),
    more,
  );

  function refresh(changes) {
    Object.assign(shown, changes);
    const chosen = chooseRows(shown, filters.passes);
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
  const show = (rows) => {
    context.severalMarkets = new Set(rows.map(({ candidate }) => candidate.market)).size > 1;
    context.severalSizes = new Set(rows.map(({ candidate }) => candidate.batch_size)).size > 1;
    filters.show(rows);
    replace(legend, basisLegend(rows));
    replace(meanings, explainWords(rows));
    refresh({ rows });
  };
  return { show, showChances: () => refresh({}) };
}

/** What the words mean that the table of `rows` shows. On narrow screens some of them are not shown. */
function explainWords(rows) {
  const meaning = (word, text, wide = true) => h("span", { class: wide ? "wide-only" : null }, h("b", null, `${word}:`), ` ${text}. `);
  return [
    rows.length > 1 ? meaning("Best", ABOUT.best, false) : null,
    meaning("Score", ABOUT.score),
    rows.some((row) => row.pareto) ? meaning("Pareto", ABOUT.pareto) : null,
    rows.some(({ candidate }) => candidate.warnings) ? meaning("see findings", ABOUT.findings) : null,
  ];
}

/** The rows that pass the filters, in the chosen order. */
function chooseRows({ rows, column, ascending }, passes) {
  const { value } = COLUMNS.find(({ id }) => id === column);
  const compare = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : a.rank - b.rank);
  return rows.filter(passes).sort((a, b) => (ascending ? compare(a, b) : compare(b, a)));
}

function tableRow(row, columns) {
  const cells = columns.map((column) => h("td", { class: classes(column) }, column.cell(row)));
  return h("tr", { class: [row.rank === 1 ? "best" : "", isUnprobed(row.candidate) ? row.candidate.basis : ""].join(" ").trim() || null }, cells);
}

function classes({ text, wide }) {
  return [text ? "text" : "", wide ? "wide-only" : ""].join(" ").trim() || null;
}
