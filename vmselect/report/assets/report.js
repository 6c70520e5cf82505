// Converts the embedded JSON to the objects that the page uses.

const TERM_TITLES = {
  boot: "boot", initialization: "initialization", first_iteration: "first iteration", steady_iterations: "steady iterations",
  partial_batch: "partial batch", first_validation: "first validation", later_validations: "later validations",
  epoch_boundaries: "epoch boundaries", interruptions: "interruptions", data_in: "data transfer in", model_out: "model transfer out",
};

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
  const [value, low, high] = machine.epochs ?? [];
  return {
    ...given,
    estimateTitle: machine.title,
    model: machine.runtime,
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

/** Set the labels: instance type, market, and the other fields in which the candidates differ. */
function nameCandidates(candidates) {
  const varying = Object.entries(NAMING_FIELDS).filter(([field]) => new Set(candidates.map((one) => one[field])).size > 1);
  const counts = new Map();
  candidates.forEach(({ instance_type }) => counts.set(instance_type, (counts.get(instance_type) ?? 0) + 1));
  for (const candidate of candidates) {
    const needed = counts.get(candidate.instance_type) > 1 ? varying : [];
    const others = needed.filter(([field]) => candidate[field] !== null).map(([field, format]) => format(candidate[field]));
    candidate.label = [candidate.instance_type, marketName(candidate.market), ...others].join(" · ");
  }
}

/**
 * The label of a candidate in about `most` characters: first its end is dropped, then the middle of the instance type. The
 * market and nine characters of the instance type are kept.
 */
function shortLabel(candidate, most) {
  const parts = candidate.label.split(" · ");
  while (parts.length > 2 && [...parts.join(" · ")].length > most) parts.pop();
  const market = parts.length > 1 ? ` · ${parts[1]}` : "";
  const whole = parts.join(" · ");
  return [...whole].length <= most ? whole : shorten(parts[0], Math.max(9, most - market.length)) + market;
}

/**
 * The label of a candidate in one to three lines of `most` characters: instance type, market, other fields. The last line is
 * shortened.
 */
function labelLines(candidate, most) {
  const fits = (text) => [...text].length <= most;
  if (fits(candidate.label)) return [candidate.label];
  const [name, ...rest] = candidate.label.split(" · ");
  if (rest.length < 2 || fits(rest.join(" · "))) return [shorten(name, most), rest.join(" · ")].filter(Boolean);
  const [market, ...others] = rest;
  while (others.length > 1 && !fits(others.join(" · "))) others.pop();
  return [shorten(name, most), market, shorten(others.join(" · "), most)];
}

function readSettings(given) {
  const markets = given.markets;
  return {
    epochs: given.decide_at ?? 1,
    weights: { ...given.objective },
    market: markets === null ? "any" : markets.join(","),
    deadline_hours: given.deadline_hours,
    budget_usd: given.budget_usd,
    deadline_chance: given.deadline_chance,
    budget_chance: given.budget_chance,
    quantile: given.quantile,
    billing: given.billing,
    interruptions: given.interruptions,
    confidence: given.confidence,
  };
}

function readMarkets(given, candidates) {
  const sold = Object.keys(MARKET_NAMES).filter((market) => candidates.some((candidate) => candidate.market === market));
  const asked = given.markets === null ? "any" : given.markets.join(",");
  return [...new Set([asked, ...sold, ...(sold.length > 1 ? ["any"] : [])])];
}

/** Each finding once with its machines, warnings first, except the age of prices, which is shown at the top of the page. */
function readFindings(payload, candidates) {
  const about = payload.findings.map(() => new Set());
  const several = new Set(candidates.map((candidate) => candidate.batch_size)).size > 1;
  const title = ({ instance_type, batch_size }) => (several ? `${instance_type}, batch ${batch_size}` : instance_type);
  candidates.forEach((candidate) => candidate.findings.forEach((i) => about[i].add(title(candidate))));
  const whole = new Set(payload.ranking_findings);
  // For the best candidate, the ranking repeats a finding with an addition.
  const more = [...whole].map((number) => payload.findings[number]);
  const goesOn = ({ code, message }) => more.some((one) => one.code === code && one.message.startsWith(message));
  return payload.findings
    .map((finding, number) => {
      const others = [...about[number]].filter((who) => !finding.message.includes(who));
      return { ...finding, number, about: others, whole: whole.has(number) };
    })
    .filter((finding) => finding.code !== "old-prices" && (finding.whole || !goesOn(finding)))
    .sort((a, b) => (a.severity === b.severity ? 0 : a.severity === "warning" ? -1 : 1));
}
