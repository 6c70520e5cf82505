// The probability of being best and of keeping limits: the same random numbers and formulas as
// vmselect/ranking/probability.py. A test compares the two.

const DRAWS = 2000;
const LARGEST_NORMAL = 6.77;
const EPOCHS_STREAM = 2 ** 20;
const POWER_STREAM = 2 ** 18;
const MAX_RATIO = 1000;
const normalsOf = new Map();

/** Hash a 32-bit counter to a number between 0 and 1. */
function uniform(counter) {
  let x = Math.imul(counter + 1, 0x9e3779b9);
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return (((x ^ (x >>> 15)) >>> 0) + 0.5) / 2 ** 32;
}

/** Standard normal random numbers, always the same ones for the same stream. */
function standardNormals(stream) {
  if (!normalsOf.has(stream)) {
    const first = stream * 2 * DRAWS;
    normalsOf.set(stream, Float64Array.from({ length: DRAWS }, (_, i) =>
      Math.sqrt(-2 * Math.log(uniform(first + i))) * Math.cos(2 * Math.PI * uniform(first + DRAWS + i))));
  }
  return normalsOf.get(stream);
}

/** Standard deviations of the logarithm of a value below and above it, from its interval. */
function logDeviations({ value, low, high }, quantile) {
  const deviation = (ratio) => {
    const width = Math.log(ratio);
    return Math.min(Math.max(Number.isNaN(width) ? 0 : width, 0), Math.log(MAX_RATIO)) / quantile;
  };
  return [deviation(value / low), deviation(high / value)];
}

/** The distribution function of the standard normal distribution. */
function normalCdf(x) {
  const z = Math.abs(x);
  if (z > 38) return x > 0 ? 1 : 0;
  const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
  let tail;
  if (z < 5) { // the Taylor series of the integral from 0
    let [term, sum] = [z, z];
    for (let k = 1; k < 200 && term > 1e-18 * sum; k += 1) {
      term *= (z * z) / (2 * k + 1);
      sum += term;
    }
    tail = 0.5 - density * sum;
  } else { // the continued fraction of the tail
    let fraction = z;
    for (let k = 60; k > 0; k -= 1) fraction = z + k / fraction;
    tail = density / fraction;
  }
  return x > 0 ? 1 - tail : tail;
}

/** Probability that a value with its interval is at most `most`. */
function limitChance(interval, most, quantile) {
  const [below, above] = logDeviations(interval, quantile);
  const distance = Math.log(most / interval.value);
  const deviations = distance / (distance < 0 ? below : above);
  return Number.isNaN(deviations) ? Number(interval.value <= most) : normalCdf(deviations);
}

/** Draws of the error that predicted machines with the same GPU share, with its smallest and largest value. */
function sharedDraws(error, group) {
  error.draws ??= [];
  if (!error.draws[group]) {
    const draws = new Float64Array(DRAWS);
    error.loadings[group].forEach((loading, k) => {
      const normals = standardNormals(error.first_stream + k);
      for (let d = 0; d < DRAWS; d += 1) draws[d] += loading * normals[d];
    });
    const scaled = draws.map((value, d) => value * error.radius[d]);
    error.draws[group] = { draws, low: Math.min(...scaled), high: Math.max(...scaled) };
  }
  return error.draws[group];
}

/** Draws of the deviation of a machine from its estimate, in standard deviations. */
function deviations({ machine, error }) {
  const normals = standardNormals(machine);
  if (!error) return normals;
  const { draws } = sharedDraws(error.of, error.group);
  return normals.map((z, d) => error.of.radius[d] * (draws[d] * error.shared + z * error.own));
}

/** Numbers below and above which none of these draws lies. */
function deviationBounds({ error }) {
  if (!error) return [-LARGEST_NORMAL, LARGEST_NORMAL];
  const { low, high } = sharedDraws(error.of, error.group);
  const reach = LARGEST_NORMAL * Math.max(...error.of.radius) * error.own;
  return [low * error.shared - reach, high * error.shared + reach];
}

/** Set `chance` and `tied` of the rows, which are ordered, best first. Returns the expected regret by measure. */
function markChances(rows, best, settings) {
  for (const row of rows) [row.chance, row.tied] = [0, false];
  if (!rows.length) return {};
  const groups = new Map(); // offers of a machine that take and are billed the same time; the first is the best
  for (const row of rows) {
    const { machine, market, increment_seconds, minimum_seconds } = row.candidate;
    const spot = settings.interruptions ? market === "spot" : null;
    const billed = settings.billing === "provider" ? [increment_seconds, minimum_seconds] : [];
    // A clean, expensive offer may be better or worse than a cheap one, depending on the power.
    row.group = [machine, spot, ...billed].join();
    const key = [row.group, ...(settings.weights.co2 ? [row.candidate.kg_per_kwh] : [])].join();
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const members = [...groups.values()].filter(([row], i, all) => i === 0 || !settings.weights.co2 || !isDominated(row, all));
  const drawn = members.map(([row]) => drawnTime(row, settings));
  const weighed = MEASURES.filter(({ name }) => settings.weights[name]);
  const usesPower = weighed.some(({ uses_power }) => uses_power);
  const valued = ({ candidate }, time, power, scored) => { // fills `scored` with the score at a time and a power
    const row = {};
    const factor = usesPower ? Math.exp(power * candidate.power.deviation) : 1;
    for (const { fields, of, uses_power } of weighed) row[fields[0]] = of(candidate, time, settings) * (uses_power ? factor : 1);
    return Object.assign(scored, row, { score: score(row, 0, best, settings.weights) });
  };
  const slowest = valued(rows[0], drawn[0].slowest, LARGEST_NORMAL, {}).score;
  const quickest = members.map(([row], i) => valued(row, drawn[i].quickest, -LARGEST_NORMAL, {}).score);
  const possible = members.map((_, i) => i).filter((i) => quickest[i] <= slowest);
  const draws = possible.map((i) => drawn[i].draw());
  const powers = possible.map((i) => (usesPower ? standardNormals(POWER_STREAM + members[i][0].candidate.power.group) : null));
  const wins = possible.map(() => 0);
  const regret = Object.fromEntries(MEASURES.filter(({ name }) => settings.weights[name]).map(({ name }) => [name, 0]));
  const [first, current, winning] = [{}, {}, {}];
  for (let d = 0; d < DRAWS; d += 1) {
    let [winners, lowest] = [[], Infinity];
    possible.forEach((i, k) => {
      valued(members[i][0], draws[k][d], powers[k]?.[d], current);
      if (k === 0) Object.assign(first, current);
      if (k === 0 || current.score < lowest) {
        [winners, lowest] = [[], current.score];
        Object.assign(winning, current);
      }
      if (current.score === lowest) winners.push(k);
    });
    for (const k of winners) wins[k] += 1 / winners.length;
    for (const { name, fields: [field] } of MEASURES) {
      if (name in regret) regret[name] += winning[field] > 0 ? Math.log(first[field] / winning[field]) / DRAWS : NaN;
    }
  }
  for (const { name, fields: [field] } of MEASURES) { // the mean ratio, at the estimate of the choice
    if (name in regret) regret[name] = Number.isNaN(regret[name]) ? 0 : rows[0][field] * -Math.expm1(-regret[name]);
  }
  possible.forEach((i, k) => {
    const same = members[i].filter((row) => row.candidate.usd_per_hour === members[i][0].candidate.usd_per_hour);
    for (const row of same) row.chance = wins[k] / same.length / DRAWS;
  });
  let before = 0;
  for (const row of [...rows].sort((a, b) => b.chance - a.chance)) {
    row.tied = row.chance > 0 && before < settings.confidence - 1e-9;
    before += row.chance;
  }
  rows[0].tied = true;
  return regret;
}

/** Whether another offer of the same machine is at most as expensive and causes at most as much CO2. */
function isDominated(row, members) {
  const { usd_per_hour: price, kg_per_kwh: factor } = row.candidate;
  return members.some(([{ group, candidate }]) => group === row.group && candidate !== row.candidate
    && candidate.usd_per_hour <= price && candidate.kg_per_kwh <= factor);
}

/** The possible times of a row at the expected number of epochs: bounds, and a function that returns draws. */
function drawnTime(row, settings) {
  const { candidate } = row;
  const count = { value: row.epochs, low: row.epochs, high: row.epochs };
  const work = workSpread(candidate.model, count);
  const [below, above] = logDeviations(work, settings.quantile);
  const half = candidate.studied ? candidate.studied.meanHalfWidth : 0;
  const [few, many] = logDeviations({ value: 1, low: Math.exp(-half), high: Math.exp(half) }, settings.quantile);
  const factor = settings.interruptions && candidate.market === "spot" ? settings.interruptions.factor : 1;
  const at = (deviation, common) =>
    work.value * Math.exp(deviation * (deviation < 0 ? below : above)) * Math.exp(common * (common < 0 ? few : many)) * factor;
  return {
    quickest: at(deviationBounds(candidate)[0], -LARGEST_NORMAL),
    slowest: at(deviationBounds(candidate)[1], LARGEST_NORMAL),
    draw() {
      const own = deviations(candidate);
      const common = many > 0 ? standardNormals(EPOCHS_STREAM + candidate.studied.position) : null;
      return own.map((deviation, d) => at(deviation, common ? common[d] : 0));
    },
  };
}
