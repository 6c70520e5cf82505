// Notes about the verdict, and the cheapest and the fastest candidate.

const STALE_AFTER_DAYS = 90;

/** Parts of a text as HTML nodes. */
function toNodes(parts) {
  return parts.map((part) => {
    if (part.strong) return h("b", null, part.strong);
    return part.name ? name(part.name, { class: part.choice ? "choice" : null }) : withCode(part);
  });
}

const SPOT_EXPECTED =
  "Spot: time and cost are expected values at the assumed interruption rate, and the intervals include its variation. " +
  "The time until a spot machine becomes available is not included.";
const SPOT_UNINTERRUPTED =
  "Spot: no interruption rate is known, so time and cost are those of a training without interruptions.";

/** The HTML nodes below the verdict: notes, warnings and candidates to compare with. */
function asideNodes(view, findings) {
  const { rows, settings, regret } = view;
  const isExample = findings.some(({ code }) => code === "example"); // its prices are old on purpose
  const old = isExample ? null : ageWarning(rows.filter((row, i) => !i || row.tied).map((row) => row.candidate.price_date));
  const notes = old ? [h("p", { class: "warning", role: "note" }, old)] : [];
  const note = (content) => notes.push(h("p", { class: "note" }, content));
  if (rows.length && rows[0].candidate.market === "spot") {
    const { interruptions } = settings;
    const unknown = !interruptions || (interruptions.by_type && !rows[0].candidate.interruptions_per_hour);
    note(unknown ? SPOT_UNINTERRUPTED : SPOT_EXPECTED);
    if (settings.deadline_hours !== null) note(toNodes(spotDeadlineParts(rows[0], view.candidates, settings)));
  }
  const tied = rows.filter((row) => row.tied).length;
  if (tied > 1) {
    const share = formatShare(settings.confidence);
    const weighed = MEASURES.filter(({ name }) => name in regret);
    const lost = weighed.map(({ name, word, format }) => `${format(regret[name])} of ${word ?? name}`);
    note(`The best of all is among the ${formatCount(tied)} rows marked "may be best" with a probability of ${share}. ` +
      `Choosing the first loses ${lost.join(" and ")} on average.`);
  }
  return [...notes, rows.length > 1 ? extremesNode(view) : null, h("p", { class: "note print-only" }, settingsText(settings))];
}

/** The settings as text, for the printed page. */
function settingsText({ weights, market, deadline_hours, budget_usd, co2_limit_kg }) {
  const deadline = deadline_hours === null ? "no deadline" : `deadline ${formatSeconds(deadline_hours * SECONDS_PER_HOUR)}`;
  const budget = budget_usd === null ? "no budget" : `budget ${formatUsd(budget_usd)}`;
  const co2 = co2_limit_kg === null ? "" : `; CO2 limit ${formatKg(co2_limit_kg)}`;
  return `Ranked by ${weightsText(weights)}; ${marketText(market)}; ${deadline}; ${budget}${co2}.`;
}

/** A warning if the oldest price is too old today, not on the day on which the page was made. */
function ageWarning(dates, today = new Date()) {
  const oldest = dates.filter(Boolean).sort()[0];
  const days = Math.floor((today - new Date(oldest)) / 86400000);
  if (!(days > STALE_AFTER_DAYS)) return null;
  const age = `The oldest price of a likely choice is of ${oldest}, ${formatCount(days)} days ago (limit: ${STALE_AFTER_DAYS} days).`;
  return `${age} Run "vmselect prices refresh" and rank again before you rent.`;
}

/** Sentences on the cheapest, fastest and cleanest candidate, where the choice is another one. */
function extremesNode({ rows, settings }) {
  const by = (field) => rows.reduce((a, b) => (b[field] < a[field] ? b : a));
  const known = rows.filter(({ co2_kg }) => !Number.isNaN(co2_kg));
  const asked = measuresOf(settings).includes(CO2) && known.length;
  const extremes = [
    ["Cheapest", by("cost_usd")], ["Fastest", by("seconds")],
    ...(asked ? [["Least CO2", known.reduce((a, b) => (b.co2_kg < a.co2_kg ? b : a))]] : []),
  ].filter(([, row]) => row !== rows[0]);
  if (!extremes.length) return null;
  return h("p", { class: "note" }, extremes.map(([kind, row], i) => [
    i ? " " : "", `${kind}: `, name(row.candidate.label), `, ${shortText(row, TIME)} for ${shortText(row, COST)}.`,
  ]));
}
