// The verdict as text: the same sentence as vmselect/ranking/views.py. A test compares the two.

const MARKET_NAMES = {
  on_demand: "on demand", spot: "spot", reserved_1y: "reserved for 1 year", reserved_3y: "reserved for 3 years",
};
/** Verb phrase that explains the exclusion of one candidate, by reason code: the same table as in vmselect/ranking/views.py. */
const REASONS = {
  below_required_metric: "misses the required metric",
  co2_unknown: "emits an unknown amount of CO2",
  contradictory_records: "cannot be predicted from contradictory records",
  implausible_price: "has only an implausible price",
  energy_unknown: "uses an unknown amount of energy",
  epochs_unknown: "needs an unknown number of epochs",
  filtered: "is left out by the filters",
  input_bound: "cannot be predicted from steps that are limited by CPU or input",
  interrupted_too_often: "is interrupted too often on the spot market",
  metric_unknown: "has an unknown final metric",
  never_probed: "was never probed",
  no_cost: "cannot be predicted without the operations of a step",
  no_estimate: "cannot be estimated",
  no_gpu: "has no GPU",
  no_gpu_figures: "has no published GPU figures",
  no_gpu_probed: "cannot be predicted without a probe on a GPU",
  no_price: "has no price",
  no_probe_to_predict_from: "cannot be predicted from these profiles",
  no_steps: "cannot be predicted without step times",
  no_transfer: "has no measured transfer time",
  no_two_node_probe: "was not probed on two nodes",
  other_batch_size: "was measured at another batch size",
  other_vendor: "has a GPU of a vendor that was not probed",
  out_of_memory: "ran out of memory",
  over_budget: "is over the budget",
  over_co2_limit: "is over the CO2 limit",
  over_deadline: "is over the deadline",
  retired: "can no longer be rented",
  several_gpus: "cannot be predicted from a probe on several GPUs",
  share_of_gpu: "has only a share of a GPU",
  stale_price: "has only a stale price",
  too_disturbed: "was measured under too much disturbance",
  too_little_gpu_memory: "has too little GPU memory",
  too_many_gpus: "has too many GPUs to be predicted",
  too_many_nodes: "has too many nodes to be predicted",
  unknown_instance_type: "has no instance type in its profile",
  unused_gpu: "has a GPU that the training did not use",
};
/** Word for the best candidate by each measure: the same table as in vmselect/ranking/views.py. */
const SUPERLATIVES = { cost: "cheapest", time: "fastest", energy: "the lowest in energy", co2: "the cleanest" };
const PLURALS = { emits: "emit", has: "have", is: "are", misses: "miss", needs: "need", uses: "use", was: "were" };
const [NEARLY_AS_GOOD, MUCH_LESS] = [1.1, 0.8];

function marketName(market) {
  return MARKET_NAMES[market] ?? market;
}

function marketText(markets) {
  return markets === "any" ? "any market" : markets.split(",").map(marketName).join(" or ");
}

/** The objective as text. */
function objectiveName(weights) {
  const weighed = MEASURES.filter(({ name }) => weights[name]);
  if (weighed.length === 1) return weighed[0].name;
  return weighed.map(({ name }) => `${significant(weights[name], 3)} ${name}`).join(" + ");
}

/** "10 epochs at batch 64 take 5 min (4 min to 6 min) and cost $1.00 ($0.90 to $1.10)". */
function runParts(row) {
  const range = (measure) => {
    if (row.candidate.interval_only) return [{ strong: shortText(row, measure) }];
    const [value, low, high] = measure.fields.map((field) => measure.format(row[field]));
    return [{ strong: value }, ` (${low} to ${high})`];
  };
  const { batch_size: size, varied } = row.candidate;
  const how = [size ? `at batch ${size}` : null, varied].filter(Boolean).map((part, i) => (i ? ", " : " ") + part).join("");
  const [take, cost] = row.epochs === 1 ? ["takes", "costs"] : ["take", "cost"];
  return [`${countEpochs(row.epochs)}${how} ${take} `, ...range(TIME), ` and ${cost} `, ...range(COST)];
}

/** A measure of a row without its interval, or only its interval if a single number would be misleading. */
function shortText(row, { fields, format }) {
  const [value, low, high] = fields.map((field) => format(row[field]));
  return row.candidate.interval_only ? `${low} to ${high}` : value;
}

function countEpochs(epochs) {
  return `${formatEpochs(epochs)} epoch${epochs === 1 ? "" : "s"}`;
}

/** The verdict as parts: text, {strong: text}, or {name: text} for what came from outside; the machine to rent is the `choice`. */
function verdictParts(view) {
  return view.rows.length ? [...headlineParts(view), " ", ...detailParts(view)] : nothingFeasible(view);
}

/** One line: the machine to rent, where, its price per hour, and the probability that it is the best choice. */
function headlineParts(view) {
  const { rows, settings, providers } = view;
  if (!rows.length) return nothingFeasible(view);
  const [best] = rows;
  const { nodes, instance_type, provider, region, market, usd_per_hour, basis } = best.candidate;
  const where = [providers[provider] ?? provider, region].filter(Boolean).join(" ");
  const rent = [
    { name: nodes > 1 ? `${nodes} x ${instance_type}` : instance_type, choice: true }, " at ", { name: where },
    ` ${marketName(market)}, ${formatUsd(usd_per_hour)}/h`,
  ];
  if (rows.length === 1) return ["Rent ", ...rent, ": the only candidate."];
  const described = basis === "described";
  const chance = isPending(view) ? PENDING : formatChance(described ? chanceOfChoice(view) : best.chance);
  return [described ? "Probably rent " : "Rent ", ...rent, ` (${chance} chance ${claimText(best, settings)}).`];
}

/** What the probability of the choice refers to: which of the machines with the same GPU is the best, a description does not tell. */
function claimText({ candidate }, settings) {
  const about = candidate.basis === "described" && candidate.gpu_model ? "its GPU is" : "of being";
  return `${about} ${superlative(settings)}`;
}

/** Word for the best candidate by the objective, such as "cheapest". */
function superlative({ weights }) {
  return SUPERLATIVES[objectiveName(weights)] ?? "the best";
}

/** Time and cost of the choice, how many candidates it was chosen from, alternatives, and what a probe would add. */
function detailParts(view) {
  const { rows, settings } = view;
  if (!rows.length) return [];
  const [best] = rows;
  if (rows.length === 1) return [...runParts(best), ".", ...remarkParts(view)];
  return [...runParts(best), `: the ${aimText(settings)} of ${formatCount(rows.length)} candidates.`, ...remarkParts(view)];
}

/** The details without time, cost and probe, which the tiles of the page show. */
function summaryParts(view) {
  const { rows, settings } = view;
  if (!rows.length) return [];
  if (rows.length === 1) return remarkParts(view);
  const claim = `The ${aimText(settings)} of ${formatCount(rows.length)} candidates.`;
  return [claim, ...remarkParts(view, { probe: false })];
}

function aimText({ weights }) {
  const objective = objectiveName(weights);
  return MEASURES.find(({ name }) => name === objective)?.aim ?? `best ${objective}`;
}

/** Sentences after time and cost: whether the choice was probed, what it consumes, and alternatives. */
function remarkParts(view, { probe = true } = {}) {
  const { rows, settings } = view;
  const [best] = rows;
  const { basis } = best.candidate;
  const alone = rows.length === 1;
  const never = basis === "predicted" || (basis === "described" && alone) ? " It was never probed." : "";
  const used = consumptionText(best, settings);
  if (alone) return [never, used];
  const rivals = rows.slice(1).filter((row) => row.tied).sort((a, b) => b.chance - a.chance);
  return [never, used, ...rivalParts(rivals, rows, settings), ...(probe ? probeParts(view) : [])];
}

/** A sentence on other candidates that may be the best. The table names them, so that the verdict stays short. */
function rivalParts(rivals, rows, settings) {
  if (rivals.length > 1) return [` ${formatCount(rivals.length)} others may be the best.`];
  if (!rivals.length) return alternativeParts(rows, settings);
  const [rival] = rivals;
  return [" It may also be ", { name: rival.candidate.title }, ` (${briefText(rival)}, ${formatChance(rival.chance)}).`];
}

/** To what probability the next probe raises that of a described choice. */
function probeParts(view) {
  const probe = view.rows[0].candidate.basis === "described" ? nextProbeOf(view) : null;
  if (!probe) return [];
  const raised = formatChance(chanceAfterProbe(view, probe.row.candidate));
  return [" A probe on ", { name: probe.row.candidate.instance_type }, ` for ${formatUsd(probe.cost)} raises the chance to ${raised}.`];
}

/** A sentence on energy and CO2 of a row, if the settings ask for them and they are known. */
function consumptionText(row, settings) {
  const known = measuresOf(settings).filter(({ optional, fields: [field] }) => optional && !Number.isNaN(row[field]));
  const used = known.map(({ name, word, verb, fields, format }) => {
    const [value, low, high] = fields.map((field) => format(row[field]));
    const spread = row.candidate.interval_only ? `${low} to ${high}` : `${value} (${low} to ${high})`;
    return `${verb} ${spread} of ${word ?? name}`;
  });
  return used.length ? ` It ${used.join(" and ")}.` : "";
}

function briefText(row) {
  return `${shortText(row, COST)} in ${shortText(row, TIME)}`;
}

/** The candidate that is nearly as good as the choice and much better in a measure without weight. */
function alternativeParts(rows, { weights }) {
  const [best] = rows;
  const near = rows.slice(1).filter((row) => row.score <= NEARLY_AS_GOOD && !row.candidate.interval_only);
  for (const { name, fields: [field], format } of MEASURES.filter((measure) => !weights[measure.name] && !measure.optional)) {
    const found = near.reduce((a, b) => (b[field] < a[field] ? b : a), near[0] ?? best);
    if (found[field] > MUCH_LESS * best[field]) continue;
    const worse = `${fixed(100 * (found.score / best.score - 1), 0)}% worse`;
    const less = `with a ${name} of ${format(found[field])} instead of ${format(best[field])}`;
    return [" ", { name: found.candidate.title }, ` (${briefText(found)}) is nearly as good (${worse}) ${less}.`];
  }
  return [];
}

/** Reason codes with their counts, most frequent first; the order in which they came decides between equals. */
function countReasons({ alwaysExcluded, unsold, excluded }) {
  const counts = new Map();
  const count = ({ reason_code }) => counts.set(reason_code, (counts.get(reason_code) ?? 0) + 1);
  [...alwaysExcluded, ...unsold].forEach(count);
  excluded.filter(({ reason_code }) => reason_code.endsWith("_unknown")).forEach(count);
  LIMITED.forEach(({ limit }) => excluded.filter(({ reason_code }) => reason_code === limit.reason_code).forEach(count));
  return [...counts].sort(([, a], [, b]) => b - a);
}

/** That `count` candidates are excluded with the reason `code`. */
function describeReason(code, count) {
  const [verb, ...rest] = (REASONS[code] ?? `is excluded (${code.replaceAll("_", " ")})`).split(" ");
  const words = count === 1 ? ["candidate", verb] : ["candidates", PLURALS[verb] ?? verb];
  return [formatCount(count), ...words, ...rest].join(" ");
}

function nothingFeasible(view) {
  const counts = countReasons(view);
  if (!counts.length) return ["Nothing is feasible: there are no candidates."];
  const reasons = counts.map(([code, n]) => describeReason(code, n));
  const shortfall = shortfallParts(view);
  if (shortfall) return [`Nothing is feasible: ${reasons.join(", ")}. `, ...shortfall];
  const all = [...view.alwaysExcluded, ...view.unsold, ...view.excluded];
  const { candidate, reason } = all.find(({ reason_code }) => reason_code === counts[0][0]);
  return [`Nothing is feasible: ${reasons.join(", ")}. For example, `, { name: candidate }, `: ${reason}.`];
}

/** The verdict as one text. */
function verdictText(view) {
  return verdictParts(view).map((part) => part.strong ?? part.name ?? part).join("");
}
