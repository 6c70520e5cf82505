// What a deadline, a budget or a CO2 limit means for candidates, as in vmselect/ranking/decision.py.

/** Measure of a row relative to each limit that is set: [{measure, ratio}]. */
function excesses(row, settings) {
  return LIMITED.filter(({ limit }) => settings[limit.setting] !== null).map((measure) => (
    { measure, ratio: row[measure.fields[0]] / (settings[measure.limit.setting] * measure.limit.unit) }
  ));
}

/** If no candidate is feasible because of a limit: the text about the nearest one and what it lacks, else null. */
function shortfallParts({ rows, everyone, settings }) {
  const measured = everyone.filter((row) => !findUnknown(row, settings));
  if (rows.length || !measured.length) return null;
  const worst = measured.map((row) => Math.max(...excesses(row, settings).map(({ ratio }) => ratio)));
  const row = measured[worst.indexOf(Math.min(...worst))];
  const over = excesses(row, settings).filter(({ ratio }) => ratio > 1);
  const needs = over.map(({ measure, ratio }) => {
    if (measure !== TIME) return `${significant(100 * (1 - 1 / ratio), 3)}% less ${measure.word ?? measure.name}`;
    return `${ratio < 999.5 ? significant(ratio, 3) : grouped(fixed(ratio, 0))} times the speed`;
  });
  const texts = needs.length ? [`${countEpochs(row.epochs)} need${row.epochs === 1 ? "s" : ""} ${needs.join(" and ")}`] : [];
  if (!row.candidate.studied) {
    const fitting = epochsThatFit(row.candidate, settings);
    texts.unshift(`${fitting ? countEpochs(fitting) : "Not even one epoch"} would fit`);
  }
  const lacking = texts.length ? ` ${texts.join("; ")}.` : "";
  return ["Nearest is ", { name: row.candidate.title }, `: ${limitBroken(row, settings).reason}.${lacking}`];
}

/** The largest number of epochs within all limits. Time, cost and CO2 grow with the epochs. */
function epochsThatFit(candidate, settings) {
  let [fits, tooMany] = [0, settings.epochs];
  while (tooMany - fits > 1) {
    const middle = Math.floor((fits + tooMany) / 2);
    if (limitBroken(evaluate(candidate, settings, middle), settings)) tooMany = middle;
    else fits = middle;
  }
  return fits;
}

/** The probability that a training with interruptions ends within `limit` seconds. */
function chanceWithin(work, limit, spot) {
  const mean = work.value * spot.factor * spot.interruptions_per_second;
  const most = poissonQuantile(1 - 1e-9, mean);
  let total = 0;
  for (let count = 0; count <= most; count += 1) {
    const spare = limit - work.value - count * spot.lost_seconds;
    const side = (spare < 0 ? work.value - work.low : work.high - work.value) / spot.deviations;
    const spread = Math.hypot(side, Math.sqrt(count) * spot.loss_deviation_seconds);
    const within = spread > 0 ? normalCdf(spare / spread) : Number(spare >= 0);
    total += within * (mean > 0 ? Math.exp(count * Math.log(mean) - mean - logFactorial(count)) : Number(count === 0));
  }
  return Math.min(1, total);
}

/** The best candidate, on demand or in a chosen market but spot, whose intervals are within all limits, or undefined. */
function safeAlternative(candidates, settings) {
  const sold = (market) => market === "on_demand" || settings.market === "any" || settings.market.split(",").includes(market);
  const rows = candidates.filter(({ market }) => market !== "spot" && sold(market))
    .map((candidate) => evaluate(candidate, settings)).filter((row) => !findUnknown(row, settings));
  const within = rows.filter((row) => LIMITED.every(({ fields: [, , high], limit }) => (
    settings[limit.setting] === null || row[high] <= settings[limit.setting] * limit.unit
  )));
  const best = Object.fromEntries(MEASURES.map(({ name, fields: [field] }) => [name, least(within, field)]));
  const scores = within.map((row) => score(row, 0, best, settings.weights));
  return within[scores.indexOf(Math.min(...scores))];
}

/** Sentences about a spot row under a deadline: the probability of meeting it, and a safe alternative. */
function spotDeadlineParts(row, candidates, settings) {
  const { interruptions } = settings;
  // Without a published rate of its type and region, its time contains no interruption.
  const hasRate = interruptions && (!interruptions.by_type || row.candidate.interruptions_per_hour > 0);
  const chance = hasRate
    ? `The probability that this spot machine meets the deadline is ${formatChance(row.limit_chances.time)}.`
    : "The probability that this spot machine meets the deadline is unknown without an interruption rate.";
  const safe = safeAlternative(candidates, settings);
  if (!safe) return [chance, " No machine outside the spot market is sure to meet the deadline: save checkpoints more often, or allow more time."];
  const ends = `: it ends within ${formatSeconds(safe.seconds_high)} for at most ${formatUsd(safe.cost_high)}.`;
  return [`${chance} A safe alternative is `, { name: safe.candidate.title }, ends];
}
