// The verdict, notes about it, and the cheapest, fastest and most expensive candidates.

const STALE_AFTER_DAYS = 90;

/** The verdict as HTML nodes. */
function verdictNodes(view) {
  return toNodes(verdictParts(view));
}

/** Parts of a text as HTML nodes. */
function toNodes(parts) {
  return parts.map((part) => {
    if (part.strong) return h("b", null, part.strong);
    return part.name ? name(part.name, { class: part.choice ? "choice" : null }) : part;
  });
}

const SPOT_EXPECTED =
  "Spot: time and cost are expected values at the assumed interruption rate, and the intervals include its variation. " +
  "The time until a spot machine becomes available is not included.";
const SPOT_UNINTERRUPTED =
  "Spot: no interruption rate was given, so time and cost are those of a training without interruptions.";

/** The HTML nodes below the verdict: notes, warnings and candidates to compare with. */
function asideNodes(view, findings) {
  const { rows, settings, regret } = view;
  const isExample = findings.some(({ code }) => code === "example"); // its prices are old on purpose
  const old = isExample ? null : ageWarning(rows.map((row) => row.candidate.price_date));
  const notes = old ? [h("p", { class: "warning", role: "note" }, old)] : [];
  const note = (content) => notes.push(h("p", { class: "note" }, content));
  if (rows.length && rows[0].candidate.market === "spot") {
    note(settings.interruptions ? SPOT_EXPECTED : SPOT_UNINTERRUPTED);
    if (settings.deadline_hours !== null) note(toNodes(spotDeadlineParts(rows[0], view.candidates, settings)));
  }
  const tied = rows.filter((row) => row.tied).length;
  if (tied > 1) {
    const share = formatShare(settings.confidence);
    const weighed = MEASURES.filter(({ name }) => name in regret);
    const lost = weighed.map(({ name, word, format }) => `${format(regret[name])} of ${word ?? name}`);
    note(`The best candidate is among the ${formatCount(tied)} marked ones with a probability of ${share}. ` +
      `Choosing the first loses ${lost.join(" and ")} on average.`);
  }
  return [...notes, h("p", { class: "note print-only" }, settingsText(settings)), rows.length > 1 ? cards(view) : null];
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
  const age = `The oldest price on this page is of ${oldest}, ${formatCount(days)} days ago (limit: ${STALE_AFTER_DAYS} days).`;
  return `${age} Run "vmselect prices refresh" and rank again before you rent.`;
}

function cards(view) {
  const { rows } = view;
  const probe = findNextProbe(view, report.payload.page.probe);
  const by = (field) => rows.reduce((a, b) => (b[field] < a[field] ? b : a));
  const [cheapest, fastest] = [by("cost_usd"), by("seconds")];
  const known = rows.filter(({ co2_kg }) => !Number.isNaN(co2_kg));
  const asked = measuresOf(view.settings).includes(CO2) && known.length;
  const cleanest = asked ? known.reduce((a, b) => (b.co2_kg < a.co2_kg ? b : a)) : null;
  const mostExpensive = rows.reduce((a, b) => (b.cost_usd > a.cost_usd ? b : a));
  const times = `${significant(mostExpensive.cost_usd / cheapest.cost_usd, 3)} times`;
  const card = (kind, row, what) => h("div", { class: "card" },
    h("p", { class: "kind" }, kind), h("p", { class: "who" }, name(row.candidate.label)), h("p", { class: "what" }, what));
  return h("div", { class: "cards" },
    card("Cheapest", cheapest, `${formatUsd(cheapest.cost_usd)} and ${formatSeconds(cheapest.seconds)}`),
    card("Fastest", fastest, `${formatSeconds(fastest.seconds)} and ${formatUsd(fastest.cost_usd)}`),
    cleanest ? card("Least CO2", cleanest, `${formatKg(cleanest.co2_kg)}, ${formatUsd(cleanest.cost_usd)}`) : null,
    card("Most expensive", mostExpensive, `${formatUsd(mostExpensive.cost_usd)}, ${times} the lowest cost`),
    probe ? card("Probe next", probe.row,
      `${probe.row.candidate.gpus > 1 ? `with ${formatCount(probe.row.candidate.gpus)} GPUs: ` : ""}${formatUsd(probe.cost)} for the probe, ` +
      `saves ${formatUsd(probe.saving)} of this training on average`) : null,
  );
}
