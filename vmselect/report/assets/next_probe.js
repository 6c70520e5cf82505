// The next probe: the same choice as vmselect/ranking/next_probe.py. A test compares the two.

const PENDING = "…"; // in place of a probability that is being computed

/** Whether the probabilities of a view are still being computed. */
function isPending({ rows, winners }) {
  return rows.length > 0 && !winners;
}

/** The next probe of a view, which is searched once. */
function nextProbeOf(view) {
  if (view.nextProbe === undefined) view.nextProbe = findNextProbe(view);
  return view.nextProbe;
}

/** The machine whose probe improves the choice most per dollar, or null if none is worth its price. */
function findNextProbe(view) {
  return runToEnd(nextProbeSteps(view));
}

/** The same in steps of less than a millisecond. */
function* nextProbeSteps({ rows, regret, settings, probe }) {
  const seen = new Set();
  const offers = rows.filter(({ candidate }) => !seen.has(candidate.machine) && seen.add(candidate.machine));
  const unprobed = offers.filter(({ candidate }) => isUnprobed(candidate));
  if (!unprobed.length || offers.length < 2 || relativeRegret(rows[0], regret, settings) < probe.enough_regret) return null;
  const levels = offers.map((row) => Math.log(row.score));
  const deviation = unprobed.map((row) => logDeviations(row.work, settings.quantile).reduce((a, b) => a + b) / 2);
  const measured = Math.min(...offers.map((row, i) => (isUnprobed(row.candidate) ? Infinity : levels[i])));
  const lowest = Math.min(...levels);
  let chosen = null;
  const correlationsWith = correlationTable(unprobed);
  const shifts = new Float64Array(unprobed.length);
  const farthest = Math.max(...probe.nodes.map(Math.abs));
  const unprobedLevels = unprobed.map(({ score }) => Math.log(score));
  for (const row of unprobed) {
    const correlated = correlationsWith(row);
    // Candidates that have not the lowest level at any node are left out, which does not change the minimum.
    let bound = measured;
    for (let k = 0; k < unprobed.length; k += 1) {
      shifts[k] = deviation[k] * correlated[k];
      bound = Math.min(bound, unprobedLevels[k] + Math.abs(shifts[k]) * farthest);
    }
    const rivals = [];
    for (let k = 0; k < unprobed.length; k += 1) {
      if (unprobedLevels[k] - Math.abs(shifts[k]) * farthest <= bound) rivals.push(k);
    }
    let expected = 0;
    for (let n = 0; n < probe.nodes.length; n += 1) {
      let least = measured;
      for (const k of rivals) {
        const level = unprobedLevels[k] + shifts[k] * probe.nodes[n];
        if (level < least) least = level;
      }
      expected += probe.weights[n] * least;
    }
    yield;
    const gain = Math.max(0, lowest - expected);
    const cost = (probe.seconds / SECONDS_PER_HOUR) * row.candidate.usd_per_hour;
    const saving = rows[0].cost_usd * -Math.expm1(-gain);
    const rate = gain / Math.max(cost, 1e-9);
    if (saving > cost && (!chosen || rate > chosen.rate)) chosen = { row, cost, saving, rate };
  }
  return chosen;
}

/** The GPU model and GPU count of a candidate; a candidate without a GPU is a kind of its own. */
function kindOf({ gpu_model, gpu_count, machine }) {
  return gpu_model && gpu_count > 0 ? `${gpu_model} ${gpu_count}` : machine;
}

/** Probability that the best machine has the GPU of the recommended one. */
function chanceOfChoice({ rows: [best], winners }) {
  return winners.filter((candidate) => kindOf(candidate) === kindOf(best.candidate)).length / winners.length;
}

/**
 * Expected probability that the GPU chosen after a probe of a candidate is the best one. In each draw, the probe measures
 * the drawn time, and the choice is the machine with the lowest expected objective.
 */
function chanceAfterProbe({ rows, winners, settings }, probed) {
  const seen = new Set();
  const offers = rows.filter(({ candidate }) => !seen.has(candidate.machine) && seen.add(candidate.machine));
  const levels = offers.map((row) => Math.log(row.score));
  const shifts = offers.map(({ candidate, work }) => {
    if (!isUnprobed(candidate)) return 0;
    const deviation = logDeviations(work, settings.quantile).reduce((a, b) => a + b) / 2;
    return deviation * errorCorrelation(candidate, probed);
  });
  const kinds = offers.map(({ candidate }) => kindOf(candidate));
  const right = deviations(probed).reduce((count, drawn, d) => {
    let [best, lowest] = [0, Infinity];
    for (let k = 0; k < offers.length; k += 1) {
      const moved = levels[k] + shifts[k] * drawn;
      if (moved < lowest) [best, lowest] = [k, moved];
    }
    return count + (kinds[best] === kindOf(winners[d]) ? 1 : 0);
  }, 0);
  return right / winners.length;
}

/** Expected regret of the choice in terms of the objective, relative to its value. */
function relativeRegret(best, regret, { weights }) {
  const parts = MEASURES.filter(({ name, fields: [field] }) => weights[name] && best[field]);
  const total = parts.reduce((sum, { name }) => sum + weights[name], 0);
  return total ? parts.reduce((sum, { name, fields: [field] }) => sum + (weights[name] * regret[name]) / best[field], 0) / total : 0;
}

/** Correlation of the errors of two predicted machines. */
function errorCorrelation(a, b) {
  if (a.machine === b.machine) return 1;
  if (a.error.of !== b.error.of) return 0;
  return sharedProduct(a.error.of, a.error.group, b.error.group) * a.error.shared * b.error.shared;
}

/** A function that returns the correlations of the errors of `rows` with that of one of them; once per kind of GPU. */
function correlationTable(rows) {
  const kinds = new Map();
  const kind = rows.map(({ candidate: { error } }) => {
    const key = `${error.source} ${error.group}`;
    if (!kinds.has(key)) kinds.set(key, { number: kinds.size, error });
    return kinds.get(key).number;
  });
  const shared = Float64Array.from(rows, ({ candidate }) => candidate.error.shared);
  const machines = Int32Array.from(rows, ({ candidate }) => candidate.machine);
  const numbered = [...kinds.values()];
  return ({ candidate: { machine, error } }) => {
    const products = Float64Array.from(numbered, (other) => (
      other.error.of === error.of ? sharedProduct(error.of, other.error.group, error.group) : 0
    ));
    return shared.map((own, k) => (machines[k] === machine ? 1 : products[kind[k]] * own * error.shared));
  };
}

/** The scalar product of the loadings of two groups. It does not depend on the settings, so it is computed once. */
function sharedProduct(error, a, b) {
  error.products ??= error.loadings.map(() => []);
  error.products[a][b] ??= error.loadings[a].reduce((sum, loading, k) => sum + loading * error.loadings[b][k], 0);
  return error.products[a][b];
}
