// The probability of being best and of keeping limits: the same random numbers and formulas as
// vmselect/ranking/probability.py. A test compares the two.

const DRAWS = 2000;
const LARGEST_NORMAL = 6.77;
const EPOCHS_STREAM = 2 ** 20;
const POWER_STREAM = 2 ** 18;
const PRICE_STREAM = 3 * 2 ** 17;
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
  // They do not depend on the settings, so they are computed once.
  error.deviations ??= normals.map((z, d) => error.of.radius[d] * (draws[d] * error.shared + z * error.own));
  return error.deviations;
}

/** Numbers below and above which none of these draws lies. */
function deviationBounds({ error }) {
  if (!error) return [-LARGEST_NORMAL, LARGEST_NORMAL];
  const { low, high } = sharedDraws(error.of, error.group);
  error.of.largestRadius ??= Math.max(...error.of.radius);
  const reach = LARGEST_NORMAL * error.of.largestRadius * error.own;
  return [low * error.shared - reach, high * error.shared + reach];
}

/** The result of a computation in steps. */
function runToEnd(steps) {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

const ROUND = 32; // candidates between two searches for those that cannot win any more

/**
 * Set `chance` and `tied` of the rows, which are ordered, best first, in steps of less than a millisecond, so that the page
 * can do other work between them. Returns the expected regret by measure, and the best candidate in each draw.
 */
function* chanceSteps(rows, best, settings) {
  if (!rows.length) return { regret: {}, winners: [] };
  const members = offerGroups(rows, settings);
  const weighed = MEASURES.filter(({ name }) => settings.weights[name]);
  const drawn = [];
  for (const [row] of members) {
    drawn.push(drawnTime(row, settings));
    yield;
  }
  const leastScores = members.map(([{ candidate }], i) => weighed.reduce((sum, measure) => (
    sum + weightedRatio(measure, drawnValue(measure, candidate, drawn[i].quickest, -LARGEST_NORMAL, -LARGEST_NORMAL, settings), best, settings)
  ), 0));
  const lead = new DrawnLead(weighed);
  let limit = Infinity;
  for (let i = 0; i < members.length; i += 1) {
    // As in Python, a candidate is not drawn if its lowest possible score cannot be the lowest in any draw.
    if (i && i % ROUND === 0) limit = lead.lowest.reduce((a, b) => Math.max(a, b)) * (1 + 1e-9);
    if (i && leastScores[i] > limit) continue;
    const { candidate } = members[i][0];
    lead.compare(i, drawScores(candidate, drawn[i].draw(), weighed, best, settings));
    yield;
  }
  const regret = lead.regret(rows[0]);
  const wins = lead.wins(members.length);
  for (const row of rows) row.chance = 0;
  members.forEach(([first, ...others], i) => {
    const same = [first, ...others.filter(({ candidate }) => candidate.usd_per_hour === first.candidate.usd_per_hour)];
    for (const row of same) row.chance = wins[i] / same.length / DRAWS;
  });
  let before = 0;
  for (const row of [...rows].sort((a, b) => b.chance - a.chance)) {
    row.tied = row.chance > 0 && before < settings.confidence - 1e-9;
    before += row.chance;
  }
  rows[0].tied = true;
  return { regret, winners: Array.from(lead.winner, (i) => members[i][0].candidate) };
}

/** Offers of a machine that take and are billed the same time, and whose prices move together; the first is the best. */
function offerGroups(rows, settings) {
  const groups = new Map();
  for (const row of rows) {
    const { machine, market, increment_seconds, minimum_seconds } = row.candidate;
    const spot = settings.interruptions ? [market === "spot", interruptionsOf(settings, row.candidate)?.factor] : null;
    const billed = settings.billing === "provider" ? [increment_seconds, minimum_seconds] : [];
    // A clean, expensive offer may be better or worse than a cheap one, depending on the power.
    const money = settings.weights.cost ? [row.candidate.moving_usd ?? 0, ...priceMove(row.candidate)] : [];
    row.group = [machine, spot, ...billed, ...money].join();
    const key = [row.group, ...(settings.weights.co2 ? [row.candidate.kg_per_kwh] : [])].join();
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups.values()].filter(([row], i, all) => i === 0 || !settings.weights.co2 || !isDominated(row, all));
}

/** A measure at a time, with power and price this many standard deviations from their estimates. */
function drawnValue({ name, of, uses_power }, candidate, time, power, price, settings) {
  let value = of(candidate, time, settings);
  if (uses_power) value *= Math.exp(power * candidate.power.deviation);
  if (name === COST.name && candidate.price_deviation) {
    const once = candidate.moving_usd ?? 0;
    value = (value - once) * Math.exp(price * candidate.price_deviation) + once;
  }
  return value;
}

function weightedRatio({ name }, value, best, { weights }) {
  return weights[name] * ratioTo(value, best[name]);
}

/** Values of each weighed measure and scores of a candidate in all draws of its time. */
function drawScores(candidate, times, weighed, best, settings) {
  const { power, price_deviation, price_group } = candidate;
  const powers = weighed.some(({ uses_power }) => uses_power) ? standardNormals(POWER_STREAM + power.group) : null;
  const prices = price_deviation ? standardNormals(PRICE_STREAM + price_group) : null;
  const scores = new Float64Array(DRAWS);
  const values = weighed.map((measure) => {
    const drawn = new Float64Array(DRAWS);
    for (let d = 0; d < DRAWS; d += 1) {
      drawn[d] = drawnValue(measure, candidate, times[d], powers?.[d], prices?.[d], settings);
      scores[d] += weightedRatio(measure, drawn[d], best, settings);
    }
    return drawn;
  });
  return { values, scores };
}

/** The best of the candidates so far in each draw. */
class DrawnLead {
  constructor(weighed) {
    this.weighed = weighed;
    this.lowest = new Float64Array(DRAWS);
    this.winner = new Int32Array(DRAWS);
    this.ties = new Map(); // draws with several best candidates, with these
  }

  /** Compare the candidate with the number `i`; the first one, 0, is the recommended one. */
  compare(i, { values, scores }) {
    if (i === 0) {
      this.first = values;
      this.winning = values.map((drawn) => drawn.slice());
      this.lowest.set(scores);
      return;
    }
    for (let d = 0; d < DRAWS; d += 1) {
      if (scores[d] < this.lowest[d]) {
        this.lowest[d] = scores[d];
        this.winner[d] = i;
        this.ties.delete(d);
        for (let m = 0; m < values.length; m += 1) this.winning[m][d] = values[m][d];
      } else if (scores[d] === this.lowest[d]) {
        this.ties.set(d, [...(this.ties.get(d) ?? [this.winner[d]]), i]);
      }
    }
  }

  /** In how many draws each of `count` candidates is the best; several best ones share a draw. */
  wins(count) {
    const wins = new Array(count).fill(0);
    this.winner.forEach((winner, d) => {
      const best = this.ties.get(d) ?? [winner];
      for (const i of best) wins[i] += 1 / best.length;
    });
    return wins;
  }

  /** Expected excess of the first candidate over the best one by measure, from the mean ratio at the estimates of `row`. */
  regret(row) {
    return Object.fromEntries(this.weighed.map(({ name, fields: [field] }, m) => {
      const [chosen, best] = [this.first[m], this.winning[m]];
      const sum = best.reduce((total, value, d) => total + (value > 0 ? Math.log(chosen[d] / value) / DRAWS : NaN), 0);
      return [name, Number.isNaN(sum) ? 0 : row[field] * -Math.expm1(-sum)];
    }));
  }
}

/** What distinguishes prices that move together from others; prices without an error do not move. */
function priceMove({ price_deviation, price_group }) {
  return price_deviation ? [price_group, price_deviation] : [0, 0];
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
  const factor = interruptionsOf(settings, candidate)?.factor ?? 1;
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
