// The verdict as text: the same sentence as vmselect/ranking/text.py. A test compares the two.

const MARKET_NAMES = {
  on_demand: "on demand", spot: "spot", reserved_1y: "reserved for 1 year", reserved_3y: "reserved for 3 years",
};
const RIVALS_SHOWN = 3;

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

/** "10 epochs in 5 min (4 min to 6 min) for $1.00 ($0.90 to $1.10)". */
function runParts(row) {
  const range = (measure) => {
    const [value, low, high] = measure.fields.map((field) => measure.format(row[field]));
    return [{ strong: value }, ` (${low} to ${high})`];
  };
  return [` ${countEpochs(row.epochs)} in `, ...range(TIME), " for ", ...range(COST)];
}

function countEpochs(epochs) {
  return `${formatEpochs(epochs)} epoch${epochs === 1 ? "" : "s"}`;
}

/** The verdict as parts: text, or {strong: text}, or {name: text} for what came from outside. */
function verdictParts(view) {
  const { rows, settings } = view;
  if (!rows.length) return nothingFeasible(view);
  const [best, second] = rows;
  // The first in order is the choice; all others stand by their score.
  const leader = second && second.score < best.score ? second : best;
  const objective = objectiveName(settings.weights);
  const aim = MEASURES.find(({ name }) => name === objective)?.aim ?? `best ${objective}`;
  const of = `the ${aim} of ${formatCount(rows.length)} candidates.`;
  const claim = rows.length === 1 ? [" the only candidate left."]
    : leader === best ? [` ${of}`] : [` tied for ${of} `, ...givenUp(best, leader, aim, settings)];
  const rivals = rows.filter((row) => row.tied && row !== best && row !== leader);
  const named = rivals.slice(0, RIVALS_SHOWN).flatMap((row, i) => [
    i ? "; " : "", { name: row.candidate.title }, ` (${formatUsd(row.cost_usd)} in ${formatSeconds(row.seconds)})`,
  ]);
  const more = rivals.length > RIVALS_SHOWN ? ` and ${formatCount(rivals.length - RIVALS_SHOWN)} more` : "";
  const tie = rivals.length ? [" Within the intervals it is a tie with ", ...named, `${more}.`] : [];
  return ["Rent ", { name: best.candidate.title }, ":", ...runParts(best), ":", ...claim, ...tie];
}

function ratioText(ratio) {
  return ratio < 999.5 ? significant(ratio, 3) : grouped(fixed(ratio, 0));
}

/** Advantages and disadvantages of the candidate with the best score against the preferred one. */
function givenUp(best, leader, aim, { weights }) {
  const [over, against] = [[], []];
  for (const { name, fields: [field], format } of MEASURES) {
    const [mine, its] = [best[field], leader[field]];
    if (weights[name]) over.push(`${format(its)} instead of ${format(mine)}`);
    else against.push(`its ${name} is ${mine ? `${ratioText(its / mine)} times` : "more than"} that of the choice (${format(its)})`);
  }
  const claim = ` has the ${aim}, ${over.join(", ")}, but ${against.join(", ")}.`;
  return ["By the estimates alone ", { name: leader.candidate.title }, claim];
}

/** Reason codes with their counts, most frequent first; the order in which they came decides between equals. */
function countReasons({ alwaysExcluded, unsold, excluded }) {
  const counts = new Map();
  const count = ({ reason_code }) => counts.set(reason_code, (counts.get(reason_code) ?? 0) + 1);
  [...alwaysExcluded, ...unsold].forEach(count);
  LIMITED.forEach(({ limit }) => excluded.filter(({ reason_code }) => reason_code === limit.reason_code).forEach(count));
  return [...counts].sort(([, a], [, b]) => b - a);
}

function nothingFeasible(view) {
  const counts = countReasons(view);
  if (!counts.length) return ["Nothing is feasible: there are no candidates."];
  const reasons = counts.map(([code, n]) => `${formatCount(n)} candidate${n === 1 ? "" : "s"} ${code.replaceAll("_", " ")}`);
  const shortfall = shortfallParts(view);
  if (shortfall) return [`Nothing is feasible: ${reasons.join(", ")}. `, ...shortfall];
  const all = [...view.alwaysExcluded, ...view.unsold, ...view.excluded];
  const { candidate, reason } = all.find(({ reason_code }) => reason_code === counts[0][0]);
  return [`Nothing is feasible: ${reasons.join(", ")}. For one, `, { name: candidate }, `: ${reason}.`];
}

/** The verdict as one text. */
function verdictText(view) {
  return verdictParts(view).map((part) => part.strong ?? part.name ?? part).join("");
}
