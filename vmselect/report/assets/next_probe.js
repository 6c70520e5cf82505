// The next probe: the same choice as vmselect/ranking/next_probe.py. A test compares the two.

/** The machine whose probe improves the choice most per dollar, or null if none is worth its price. */
function findNextProbe({ rows, regret, settings }, probe) {
  const seen = new Set();
  const offers = rows.filter(({ candidate }) => !seen.has(candidate.machine) && seen.add(candidate.machine));
  const unprobed = offers.filter(({ candidate }) => candidate.basis === "predicted");
  if (!unprobed.length || offers.length < 2 || relativeRegret(rows[0], regret, settings) < probe.enough_regret) return null;
  const levels = offers.map((row) => Math.log(row.score));
  const deviation = unprobed.map((row) => logDeviations(row.work, settings.quantile).reduce((a, b) => a + b) / 2);
  const measured = Math.min(...offers.map((row, i) => (row.candidate.basis === "predicted" ? Infinity : levels[i])));
  const lowest = Math.min(...levels);
  let chosen = null;
  for (const row of unprobed) {
    const shifts = unprobed.map((other, k) => deviation[k] * errorCorrelation(other.candidate, row.candidate));
    const expected = probe.nodes.reduce((sum, node, n) => sum + probe.weights[n] * unprobed.reduce(
      (least, other, k) => Math.min(least, Math.log(other.score) + shifts[k] * node), measured), 0);
    const gain = Math.max(0, lowest - expected);
    const cost = (probe.seconds / SECONDS_PER_HOUR) * row.candidate.usd_per_hour;
    const saving = rows[0].cost_usd * -Math.expm1(-gain);
    const rate = gain / Math.max(cost, 1e-9);
    if (saving > cost && (!chosen || rate > chosen.rate)) chosen = { row, cost, saving, rate };
  }
  return chosen;
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
  const [left, right] = [a.error.of.loadings[a.error.group], b.error.of.loadings[b.error.group]];
  return left.reduce((sum, loading, k) => sum + loading * right[k], 0) * a.error.shared * b.error.shared;
}
