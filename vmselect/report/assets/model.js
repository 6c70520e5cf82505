// Computes the ranking in the browser, with the formulas and results of vmselect.ranking. docs/reference/ranking.md
// documents the formulas.

/** Number of validations in n epochs: zero or less before the first one. */
function validations(model, n) {
  const last = Math.min(n, model.validation_until ?? Infinity);
  return Math.floor((last - model.validation_from) / model.validation_freq) + 1;
}

/** How often the parts of a training of n epochs occur, by the names in the table of coefficients. */
function countsOf(model, n) {
  const passes = validations(model, n);
  return { once: 1, epochs: n, first_validation: passes >= 1 ? 1 : 0, later_validations: Math.max(0, passes - 1) };
}

/** The model of a machine with its `parts`: pairs of seconds and the count that they multiply. `table` lists all parts. */
function readModel(coefficients, table) {
  return { ...coefficients, parts: table.map(({ name, multiplies }) => [coefficients[name], multiplies]) };
}

/** Seconds of a training of n epochs without interruptions. */
function workSeconds(model, n) {
  const counts = countsOf(model, n);
  return model.parts.reduce((sum, [seconds, multiplies]) => sum + seconds * counts[multiplies], 0);
}

function halfWidth([a, b, c], n) {
  return Math.sqrt(Math.max(0, a + b * n + c * n ** 2));
}

/** Low end of the seconds of a training of n epochs: never below its certain part. */
function workLow(model, n) {
  const [once, perEpoch] = model.certain;
  const seconds = workSeconds(model, n);
  return Math.max(0, Math.min(seconds, once + perEpoch * n), seconds - halfWidth(model.low, n));
}

/** Seconds of a training with their interval. `epochs` is {value, low, high}, which differ if a study estimated them. */
function workSpread(model, epochs) {
  return {
    value: workSeconds(model, epochs.value),
    low: workLow(model, epochs.low),
    high: workSeconds(model, epochs.high) + halfWidth(model.high, epochs.high),
  };
}

/** The same interval, beginning with the time of the earliest stop if a callback may end a training of n epochs by itself. */
function withEarlyStop(work, model, n) {
  const [earliest, planned] = model.early_stopping ?? [Infinity, Infinity];
  return n > earliest && n >= planned ? { ...work, low: Math.min(work.low, workLow(model, earliest)) } : work;
}

/**
 * The interruptions of a candidate: those of the settings, at the rate of its type and region if they have none. Machines
 * that train together all wait for the one that is interrupted.
 */
function interruptionsOf({ interruptions }, { market, interruptions_per_hour, nodes }) {
  if (!interruptions || market !== "spot") return null;
  if (!interruptions.by_type && nodes === 1) return interruptions;
  const perMachine = interruptions.by_type ? interruptions_per_hour / SECONDS_PER_HOUR : interruptions.interruptions_per_second;
  const perSecond = nodes * perMachine;
  return { ...interruptions, interruptions_per_second: perSecond, factor: 1 / (1 - interruptions.lost_seconds * perSecond) };
}

/** Expected time with interruptions, and its interval from the quantiles of their number at this confidence. */
function stretch(work, spot, confidence) {
  const tail = (1 - confidence) / 2;
  const giveOrTake = spot.deviations * spot.loss_deviation_seconds;
  const fewest = poissonQuantile(tail, work.low * spot.factor * spot.interruptions_per_second);
  const most = poissonQuantile(1 - tail, work.high * spot.factor * spot.interruptions_per_second);
  const expected = work.value * spot.factor;
  const low = Math.max(0, fewest * spot.lost_seconds - giveOrTake * Math.sqrt(fewest));
  const high = most * spot.lost_seconds + giveOrTake * Math.sqrt(most);
  return { value: expected, low: Math.min(work.low + low, expected), high: Math.max(work.high + high, expected) };
}

/** The quantile `share` of a Poisson distribution with this mean. */
function poissonQuantile(share, mean) {
  if (!(mean > 0)) return 0;
  // The probability of smaller counts is negligible.
  let count = Math.max(0, Math.floor(mean - 12 * Math.sqrt(mean) - 10));
  let chance = Math.exp(count * Math.log(mean) - mean - logFactorial(count));
  let total = chance;
  while (total < share && (count < mean || chance > 1e-18)) {
    count += 1;
    chance *= mean / count;
    total += chance;
  }
  return count;
}

function logFactorial(n) {
  if (n < 20) return Array.from({ length: n }, (_, k) => Math.log(k + 1)).reduce((sum, log) => sum + log, 0);
  return n * Math.log(n) - n + Math.log(2 * Math.PI * n) / 2 + 1 / (12 * n) - 1 / (360 * n ** 3) + 1 / (1260 * n ** 5);
}

/** USD for `seconds` of a candidate: exact, or rounded up as the provider bills them. */
function costOf(candidate, seconds, billing) {
  let charged = seconds;
  if (billing === "provider") {
    charged = Math.max(seconds, candidate.minimum_seconds);
    const step = candidate.increment_seconds;
    if (step > 0) charged = Math.ceil(charged / step) * step;
  }
  return charged * (candidate.usd_per_hour / SECONDS_PER_HOUR) + (candidate.moving_usd ?? 0);
}

const JOULES_PER_KWH = 3.6e6;

/** kWh of the machine of a candidate in `seconds`; NaN if its power is unknown. */
function energyOf({ power }, seconds) {
  return (seconds * (power?.watts ?? NaN)) / JOULES_PER_KWH;
}

/** Kilograms of CO2 of a candidate in `seconds`; NaN if they are unknown. */
function co2Of(candidate, seconds, { emissions }) {
  const factor = (candidate.kg_per_kwh ?? NaN) * hourlyRatio(emissions, seconds);
  return energyOf(candidate, seconds) * factor;
}

/** Mean grid intensity during a training, relative to the mean of all given hours; 1 if no hours are given. */
function hourlyRatio(emissions, seconds) {
  const hours = emissions?.hourly;
  if (!hours) return 1;
  const summed = [0];
  hours.forEach((value) => summed.push(summed.at(-1) + value));
  const total = summed.at(-1);
  if (!total) return 1;
  const until = (hour) => {
    const whole = Math.floor(hour / hours.length);
    const rest = hour - whole * hours.length;
    const first = Math.min(Math.floor(rest), hours.length - 1);
    return whole * total + summed[first] + (rest - first) * hours[first];
  };
  const length = Math.max(seconds / SECONDS_PER_HOUR, 1e-9);
  const mean = (until(emissions.start_hour + length) - until(emissions.start_hour)) / length;
  return mean / (total / hours.length);
}

/**
 * The measures that can be minimized and limited, as in vmselect/ranking/measures.py. `of` computes the value of a measure
 * from a time in seconds. Optional measures take part only if the settings ask for them.
 */
const MEASURES = [
  {
    name: "cost", title: "Cost", fields: ["cost_usd", "cost_low", "cost_high"], aim: "lowest cost", format: formatUsd,
    of: (candidate, seconds, { billing }) => costOf(candidate, seconds, billing),
    limit: {
      setting: "budget_usd", unit: 1, verb: "cost", noun: "budget", reason_code: "over_budget",
    },
  },
  {
    name: "time", title: "Time", fields: ["seconds", "seconds_low", "seconds_high"], aim: "shortest time",
    format: formatSeconds, of: (candidate, seconds) => seconds,
    limit: {
      setting: "deadline_hours", unit: SECONDS_PER_HOUR, verb: "take", noun: "deadline",
      reason_code: "over_deadline",
    },
  },
  {
    name: "energy", title: "Energy", fields: ["energy_kwh", "energy_low", "energy_high"], aim: "lowest energy",
    format: formatKwh, of: energyOf, optional: true, uses_power: true, verb: "uses",
  },
  {
    name: "co2", title: "CO2", word: "CO2", fields: ["co2_kg", "co2_low", "co2_high"], aim: "lowest CO2", format: formatKg,
    of: co2Of, optional: true, uses_power: true, verb: "emits",
    limit: {
      setting: "co2_limit_kg", unit: 1, verb: "emit", noun: "CO2 limit",
      reason_code: "over_co2_limit",
    },
  },
];
const [COST, TIME, ENERGY, CO2] = MEASURES;
/** Measures with limits. If a candidate exceeds several, the first is its reason of exclusion. */
const LIMITED = [TIME, COST, CO2];
const OPTIONAL = [ENERGY, CO2];

/** Whether a measure has a weight or a limit, so that candidates without it cannot be ranked. */
function needs(settings, { name, limit }) {
  return Boolean(settings.weights[name]) || Boolean(limit && (settings[limit.setting] ?? null) !== null);
}

/** The measures that the settings ask for: energy and CO2 only if one of them is asked for. */
function measuresOf(settings) {
  const asked = settings.emissions || OPTIONAL.some((measure) => needs(settings, measure));
  return MEASURES.filter(({ optional }) => asked || !optional);
}

/** Value, low and high end of a measure at a time with its interval. The error of the power is independent of the time. */
function measureSpread({ name, of, uses_power }, candidate, time, settings) {
  const [value, low, high] = [time.value, time.low, time.high].map((seconds) => of(candidate, seconds, settings));
  if (name === COST.name && candidate.price_deviation) return costSpread([value, low, high], candidate, settings);
  if (!uses_power || Number.isNaN(value)) return [value, low, high];
  const spread = settings.quantile * candidate.power.deviation;
  const [down, up] = [Math.log(time.value / time.low) || 0, Math.log(time.high / time.value) || 0];
  const least = Number.isFinite(down) ? low * Math.exp(down - Math.hypot(down, spread)) : 0;
  return [value, least, high * Math.exp(Math.hypot(up, spread) - up)];
}

/** Value, low and high end of a cost, whose price has an error that is independent of the time and grows with its age. */
function costSpread(cost, { price_deviation, moving_usd }, { quantile }) {
  const once = moving_usd ?? 0;
  const [rent, low, high] = cost.map((usd) => usd - once);
  const [down, up] = [Math.log(rent / low) || 0, Math.log(high / rent) || 0];
  const [less, more] = [down, up].map((side) => Math.exp(Math.hypot(side, quantile * price_deviation)));
  return [cost[0], rent / less + once, rent * more + once];
}

/** The measures of a candidate at the number of epochs in the settings or, with a study, in the study. */
function evaluate(candidate, settings, count = settings.epochs) {
  const epochs = candidate.studied ?? { value: count, low: count, high: count };
  const work = workSpread(candidate.model, epochs);
  const spot = interruptionsOf(settings, candidate);
  const shown = candidate.studied ? work : withEarlyStop(work, candidate.model, count);
  const time = spot ? stretch(shown, spot, settings.confidence) : shown;
  const row = { candidate, epochs: epochs.value, work_seconds: work.value, work };
  for (const measure of MEASURES) {
    measureSpread(measure, candidate, time, settings).forEach((value, i) => (row[measure.fields[i]] = value));
  }
  return row;
}

/** A measure without its interval, fast enough for thousands of candidates at many numbers of epochs. */
function expected(candidate, settings, field, count) {
  const seconds = workSeconds(candidate.model, count) * (interruptionsOf(settings, candidate)?.factor ?? 1);
  return MEASURES.find(({ fields }) => fields[0] === field).of(candidate, seconds, settings);
}

/** The terms of the time of a row: a map from name to seconds, without terms of 0 s. */
function termSeconds(row) {
  const { model } = row.candidate;
  const counts = countsOf(model, row.epochs);
  const terms = Object.entries(model.terms).map(([term, [once, perEpoch]]) => [term, once + perEpoch * row.epochs]);
  // Each count of validations is a term of its own, and has the same name.
  const validating = model.parts.filter(([, multiplies]) => !["once", "epochs"].includes(multiplies));
  terms.push(...validating.map(([seconds, multiplies]) => [multiplies, seconds * counts[multiplies]]));
  if (row.seconds > row.work_seconds) terms.push(["interruptions", row.seconds - row.work_seconds]);
  return new Map(terms.filter(([, seconds]) => seconds));
}

/** Rank the candidates as {@link order} does, with the probability of being best. */
function rank(candidates, settings, alwaysExcluded = []) {
  const ranked = order(candidates, settings, alwaysExcluded);
  return { ...ranked, ...runToEnd(chanceSteps(ranked.rows, ranked.best, settings)) };
}

/**
 * Order the candidates. Returns `rows`, best first; `everyone` in the chosen markets; candidates over a limit (`excluded`),
 * without a price in these markets (`unsold`), and excluded at any settings (`alwaysExcluded`). The probabilities of being
 * best (`chance`) are null: they take about ten times as long, and the order does not depend on them.
 */
function order(candidates, settings, alwaysExcluded) {
  const everyone = candidates
    .filter((candidate) => settings.market === "any" || settings.market.split(",").includes(candidate.market))
    .map((candidate) => evaluate(candidate, settings));
  const excluded = [];
  const rows = everyone.filter((row) => {
    const broken = limitBroken(row, settings);
    if (broken) excluded.push({ candidate: row.candidate.title, ...broken });
    return !broken;
  });
  const best = Object.fromEntries(MEASURES.map(({ name, fields: [field] }) => [name, least(rows, field)]));
  const compared = MEASURES.filter((measure) => !measure.optional || needs(settings, measure));
  const equally = Object.fromEntries(compared.map(({ name }) => [name, 1 / compared.length]));
  for (const row of rows) {
    row.score = score(row, 0, best, settings.weights);
    row.whole = score(row, 0, best, equally);
  }
  // Equal scores are ordered by the sum of all ratios, then by the measures themselves, so that no rounding puts a
  // candidate before one that is better, and last by the fixed order of the candidates.
  const keys = ["score", "whole", ...compared.map(({ fields: [field] }) => field)];
  rows.sort((a, b) => keys.reduce((found, key) => found || compare(a[key], b[key]), 0));
  markFront(rows);
  rows.forEach((row, i) => Object.assign(row, { rank: i + 1, chance: null, tied: false }));
  return { rows, everyone, excluded, best, unsold: findUnsold(candidates, everyone, settings), alwaysExcluded };
}

/** Machine estimates that have prices, but none in the chosen markets. */
function findUnsold(candidates, everyone, { market }) {
  const sold = new Set(everyone.map((row) => row.candidate.machine));
  const elsewhere = new Map();
  for (const one of candidates) {
    if (sold.has(one.machine)) continue;
    const markets = elsewhere.get(one.machine)?.markets ?? new Set();
    elsewhere.set(one.machine, { one, markets: markets.add(one.market) });
  }
  return [...elsewhere].sort(([a], [b]) => a - b).map(([, { one, markets }]) => ({
    candidate: one.estimateTitle,
    reason_code: "no_price",
    reason: `the catalog has no ${market.split(",").join(", ")} price of ${one.instance_type}, only ${[...markets].sort().join(", ")}`,
  }));
}

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

function least(rows, field) {
  return rows.reduce((smallest, row) => Math.min(smallest, row[field]), Infinity);
}

function ratioTo(value, best) {
  return best > 0 ? value / best : value > 0 ? Infinity : 1;
}

/** Sum of weight x value / best value, of the values (0), low (1) or high ends (2) of a row. 1.00 is the best possible. */
function score(row, end, best, weights) {
  let total = 0;
  for (const { name, fields } of MEASURES) {
    if (weights[name]) total += weights[name] * ratioTo(row[fields[end]], best[name]);
  }
  return total;
}

/** Why a measure that the settings need is unknown for a row, or null. */
function findUnknown({ candidate, energy_kwh, co2_kg }, settings) {
  if (OPTIONAL.some((measure) => needs(settings, measure)) && Number.isNaN(energy_kwh)) {
    return { reason_code: "energy_unknown", reason: `its energy is unknown: ${candidate.power.unknown}` };
  }
  if (!needs(settings, CO2) || !Number.isNaN(co2_kg)) return null;
  const what = settings.emissions?.basis === "market" ? "share of carbon-free energy" : "grid intensity";
  const remedy = "pass emissions= with grid_g_per_kwh or country (--grid-g-per-kwh, --country)";
  const where = `${candidate.provider} ${candidate.region}`;
  return { reason_code: "co2_unknown", reason: `its CO2 is unknown: no ${what} of ${where} is known; ${remedy}` };
}

/** Set the probabilities of keeping the limits. Returns the reason why a row is excluded, or null. */
function limitBroken(row, settings) {
  row.limit_chances = {};
  const unknown = findUnknown(row, settings);
  if (unknown) return unknown;
  const reasons = LIMITED.map(({ name, fields, format, limit }) => {
    const most = (settings[limit.setting] ?? Infinity) * limit.unit;
    if (most === Infinity) return null;
    const [value, low, high] = fields.map((field) => row[field]);
    const spot = name === "time" && interruptionsOf(settings, row.candidate);
    const chance = (row.limit_chances[name] = spot
      ? chanceWithin(row.work, most, spot)
      : limitChance({ value, low, high }, most, settings.quantile));
    const required = settings.chance;
    if (required === null ? value <= most : chance >= required) return null;
    const run = `${countEpochs(row.epochs)} ${limit.verb}${row.epochs === 1 ? "s" : ""} ${format(value)}`;
    if (required === null) return { reason_code: limit.reason_code, reason: `${run}, over the ${limit.noun} of ${format(most)}` };
    const kept = `the probability of keeping the ${limit.noun} of ${format(most)} is ${formatChance(chance)}`;
    return { reason_code: limit.reason_code, reason: `${run}; ${kept}, less than the required ${significant(required, 3)}` };
  });
  return reasons.find(Boolean) ?? null;
}

/** Mark the Pareto front: rows that no other row beats in both time and cost. Equal rows are on it together. */
function markFront(rows) {
  const order = [...rows].sort((a, b) => a.seconds - b.seconds || a.cost_usd - b.cost_usd);
  let last = { seconds: -1, cost_usd: Infinity };
  for (const row of order) {
    row.pareto = row.cost_usd < last.cost_usd || (row.seconds === last.seconds && row.cost_usd === last.cost_usd);
    if (row.pareto) last = row;
  }
}

/** The candidates that are feasible at the chosen number of epochs, in their fixed order. */
function feasibleOf({ everyone, rows }) {
  const feasible = new Set(rows);
  return everyone.filter((row) => feasible.has(row)).map(({ candidate }) => candidate);
}

const MAX_EVALUATIONS = 200_000;

/**
 * The best candidates by `field` from 1 to `most` epochs, as ranges {candidate, from, to}.
 * If values are linear in the epochs, the best candidate at two numbers is best between them, and bisection finds every
 * change. Validation every few epochs and rounded bills make steps: then the first numbers are evaluated one by one.
 */
function findLeaders(candidates, settings, field, most) {
  if (!candidates.length) return [];
  const linear = ({ validation_freq, validation_from, validation_until }) =>
    validation_freq === 1 && validation_from === 1 && (validation_until ?? null) === null;
  const straight = settings.billing === "exact" && candidates.every(({ model }) => linear(model));
  const early = straight ? 1 : Math.min(most, Math.max(1, Math.floor(MAX_EVALUATIONS / candidates.length)));
  const leader = (n) => {
    let [best, lowest] = [candidates[0], Infinity];
    for (const candidate of candidates) {
      const value = expected(candidate, settings, field, n);
      if (value < lowest) [best, lowest] = [candidate, value];
    }
    return best;
  };
  const runs = [{ candidate: leader(1), from: 1, to: most }];
  const halve = (low, first, high, last) => {
    if (first === last) return;
    if (high - low === 1) {
      runs.at(-1).to = low;
      runs.push({ candidate: last, from: high, to: most });
      return;
    }
    const middle = Math.floor((low + high) / 2);
    const between = leader(middle);
    halve(low, first, middle, between);
    halve(middle, between, high, last);
  };
  for (let n = 2; n <= early; n += 1) halve(n - 1, runs.at(-1).candidate, n, leader(n));
  halve(early, runs.at(-1).candidate, most, leader(most));
  return runs;
}
