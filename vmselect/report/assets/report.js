// Converts the embedded JSON to the objects that the page uses.

const TERM_TITLES = {
  boot: "boot", initialization: "initialization", first_iteration: "first iteration", steady_iterations: "steady iterations",
  partial_batch: "partial batch", first_validation: "first validation", later_validations: "later validations",
  epoch_boundaries: "epoch boundaries", interruptions: "interruptions", data_in: "data transfer in", model_out: "model transfer out",
};

/** Marks of candidates that were not measured, by basis: the same table as in vmselect/ranking/views.py. */
const BASIS_MARKS = { predicted: "never probed", described: "described only" };

function isUnprobed({ basis }) {
  return basis in BASIS_MARKS;
}

/** The report: candidates to rank, the settings with which it was made, findings and facts. */
function readReport(payload) {
  const candidates = payload.candidates.map((candidate) => readCandidate(candidate, payload));
  const studied = Boolean(payload.study);
  return {
    payload,
    candidates,
    initial: readSettings(payload.settings, studied),
    markets: readMarkets(payload.settings, candidates),
    mostEpochs: Math.max(1, ...payload.settings.epochs),
    terms: Object.entries(TERM_TITLES).map(([id, title], slot) => ({ id, title, slot })),
    steps: payload.page.steps,
    findings: readFindings(payload, candidates),
    excluded: payload.excluded,
    facts: payload.page.facts,
    studied,
  };
}

const SEARCHED = ["instance_type", "provider", "service", "region", "gpu_model", "batch_size", "varied"];

/** Whether to mark a candidate for this finding. A missing interruption rate is stated once, at the top of the page. */
function isWarning({ severity, code }) {
  return severity === "warning" && code !== "spot-uninterrupted";
}

function readCandidate(given, payload) {
  const machine = payload.machines[given.machine];
  const error = payload.page.error_model.machines[given.machine];
  const [value, low, high] = machine.epochs ?? [];
  return {
    ...given,
    estimateTitle: machine.title,
    model: readModel(machine.runtime, payload.page.coefficients),
    basis: machine.basis,
    nodes: machine.factors.nodes ?? 1,
    interval_only: machine.interval_only,
    power: machine.power,
    error: error ? { ...error, of: payload.page.error_model.errors[error.source] } : null,
    studied: machine.epochs
      ? { value, low, high, ...epochsOf(payload.study, given.batch_size) }
      : null,
    metric: metricText(payload.study, given.batch_size),
    minimum_seconds: given.billing_minimum_seconds,
    increment_seconds: given.billing_increment_seconds,
    price_date: given.date,
    warnings: given.findings.some((i) => isWarning(payload.findings[i])),
    bound: given.findings.map((i) => payload.findings[i].bound).find(Boolean) ?? null,
    searchable: SEARCHED.map((field) => given[field] ?? "").concat(marketName(given.market)).join(" ").toLowerCase(),
  };
}

/** The relative half-width of the mean number of epochs of a batch size, and its position among all batch sizes. */
function epochsOf({ sizes }, batchSize) {
  const position = sizes.findIndex((size) => size.batch_size === batchSize);
  return { meanHalfWidth: sizes[position].mean_half_width, position };
}

/** Epochs and metric of a batch size. */
function sizeOf(study, batchSize) {
  return study.sizes.find((size) => size.batch_size === batchSize);
}

/** The study's metric at a batch size as text, or null. */
function metricText(study, batchSize) {
  const metric = (study && sizeOf(study, batchSize)?.metric) ?? null;
  return metric === null ? null : `${study.monitor} ${significant(metric, 4)}`;
}

const NAMING_FIELDS = {
  batch_size: (value) => `batch ${value}`, varied: String, region: String, service: String, provider: String,
};

/** Set the labels: instance type, market if several are sold, and the fields in which offers of this type differ. */
function nameCandidates(candidates) {
  const severalMarkets = new Set(candidates.map(({ market }) => market)).size > 1;
  const types = new Map();
  for (const one of candidates) {
    if (!types.has(one.instance_type)) types.set(one.instance_type, []);
    types.get(one.instance_type).push(one);
  }
  for (const alike of types.values()) {
    const needed = Object.entries(NAMING_FIELDS).filter(([field]) => new Set(alike.map((one) => one[field])).size > 1);
    for (const candidate of alike) {
      const others = needed.filter(([field]) => candidate[field] !== null).map(([field, format]) => format(candidate[field]));
      candidate.labelParts = [candidate.instance_type, ...(severalMarkets ? [marketName(candidate.market)] : []), ...others];
      candidate.label = candidate.labelParts.join(" · ");
    }
  }
}

/**
 * The label of a candidate in about `most` characters: first its end is dropped, then the middle of the instance type, of
 * which nine characters are kept.
 */
function shortLabel({ labelParts }, most) {
  const parts = [...labelParts];
  while (parts.length > 2 && [...parts.join(" · ")].length > most) parts.pop();
  const [name, ...rest] = parts;
  const end = rest.map((part) => ` · ${part}`).join("");
  return shorten(name, Math.max(9, most - [...end].length)) + end;
}

/** The label of a candidate in one line or two of `most` characters: instance type, other parts. */
function labelLines({ label, labelParts: [name, ...rest] }, most) {
  if ([...label].length <= most || !rest.length) return [shorten(label, most)];
  return [shorten(name, most), shorten(rest.join(" · "), most)];
}

function readSettings(given) {
  const market = given.market === "all" ? "any" : given.market.join(",");
  return {
    epochs: given.epochs.at(-1) ?? 1,
    weights: { ...given.objective },
    market,
    deadline_hours: given.deadline_hours,
    budget_usd: given.budget_usd,
    co2_limit_kg: given.co2_limit_kg,
    chance: given.chance,
    emissions: given.emissions,
    quantile: given.quantile,
    billing: given.billing,
    interruptions: given.interruptions,
    confidence: given.confidence,
  };
}

function readMarkets(given, candidates) {
  const sold = Object.keys(MARKET_NAMES).filter((market) => candidates.some((candidate) => candidate.market === market));
  const asked = given.market === "all" ? "any" : given.market.join(",");
  return [...new Set([asked, ...sold, ...(sold.length > 1 ? ["any"] : [])])];
}

/**
 * The findings by kind, warnings first: {code, remedy, severity, messages}. A message is {text, number, whole, about}, with
 * the machines that it does not name. The age of prices is shown at the top of the page.
 */
function readFindings(payload, candidates) {
  const about = payload.findings.map(() => new Set());
  const several = new Set(candidates.map((candidate) => candidate.batch_size)).size > 1;
  const title = ({ instance_type, batch_size }) => (several ? `${instance_type}, batch ${batch_size}` : instance_type);
  const types = payload.findings.map(() => new Set());
  candidates.forEach((candidate) => candidate.findings.forEach((i) => {
    about[i].add(title(candidate));
    types[i].add(candidate.instance_type);
  }));
  // Remedies that differ only in the machine that they name are one remedy.
  const unnamed = (number, text) => [...types[number]].sort((a, b) => b.length - a.length)
    .reduce((rest, type) => rest.replaceAll(type, "that machine"), text ?? "");
  const whole = new Set(payload.ranking_findings);
  const restated = new Set(payload.page.restated_findings);
  const kinds = new Map();
  payload.findings.forEach((finding, number) => {
    const { code, message, remedy, severity } = finding;
    // The page itself states what depends on its settings.
    if (code === "old-prices" || code === "spot-deadline" || restated.has(number)) return;
    const key = JSON.stringify([code, unnamed(number, remedy)]);
    const kind = kinds.get(key) ?? { code, remedy, severity, messages: [] };
    if (kind.remedy !== remedy) kind.remedy = unnamed(number, remedy);
    kinds.set(key, kind);
    const others = [...about[number]].filter((who) => !message.includes(who));
    kind.messages.push({ text: message, number, whole: whole.has(number), about: others });
  });
  return [...kinds.values()].sort((a, b) => (a.severity === b.severity ? 0 : a.severity === "warning" ? -1 : 1));
}
