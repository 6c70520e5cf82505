// Trainings that are or were watched: what they have taken, what they will take, and how right the forecast was.

SECTIONS.splice(SECTIONS.findIndex(({ id }) => id === "ranking") + 1, 0, {
  id: "training",
  title: "This training",
  lede: "From the records of whole trainings, with all parts of a training that was resumed. Intervals are 90 % intervals.",
  shown: (report) => report.payload.page.trainings.length > 0,
  empty: () => false,
  build(host, report) {
    const { trainings } = report.payload.page;
    for (const training of trainings) {
      if (trainings.length > 1) host.append(h("h3", null, name(training.title), `, begun ${minute(training.begun)}`));
      const facts = trainingFacts(training).map(([term, fact]) => [h("dt", null, term), h("dd", { dir: "auto" }, fact)]);
      host.append(h("dl", { class: "facts" }, facts));
    }
  },
});

/** Names and values of what is known about a training. */
function trainingFacts(training) {
  const { usd, usd_per_hour, market, region, remaining, total, final_usd, epochs, parts, forecast } = training;
  const ended = training.state === "ended";
  const most = training.at_most ? "at most " : "";
  const price = usd_per_hour === null ? "" : `, ${formatUsd(usd_per_hour)} per hour ${market.replace("_", " ")}`;
  const left = (interval, format) => (interval ? `${most}${withRange(interval, format)}` : "unknown");
  const facts = [
    ["Model", name(training.model ?? "unknown")],
    ["Machine", [name(training.instance_type ?? "unknown"), region ? [" in ", name(region)] : "", price]],
    ["State", trainingState(training)],
    ["Epochs done", epochs === null ? formatCount(training.epochs_done) : `${formatCount(training.epochs_done)} of ${formatCount(epochs)}`],
    [ended ? "Total time" : "Time so far", formatSeconds(training.seconds)],
  ];
  if (!ended) facts.push(["Remaining time", left(remaining, formatSeconds)], ["Total time", left(total, formatSeconds)]);
  facts.push([ended ? "Final cost" : "Cost so far", usd === null ? "unknown" : formatUsd(usd)]);
  if (!ended) facts.push(["Final cost", left(final_usd, formatUsd)]);
  if (parts > 1) {
    const lost = `${formatSeconds(training.lost_seconds)} for resuming and repeated work`;
    facts.push(["Parts", `${formatCount(parts)}, with ${countOf(training.interruptions, "interruption")}; ${lost}`]);
  }
  if (training.missing_epochs) {
    facts.push(["Not included", `the first ${countOf(training.missing_epochs, "epoch")}, of which there is no record`]);
  }
  if (forecast) facts.push(["Forecast", forecastText(forecast)]);
  return facts;
}

function trainingState({ state, detail, recorded_until }) {
  const until = `recorded until ${minute(recorded_until)}`;
  if (state === "ended") return `ended; ${until}`;
  if (state === "running") return `running, or killed without a message; ${until}`;
  return ["interrupted", detail ? [" (", name(detail), ")"] : "", `; ${until}`];
}

/** A time in UTC, without its seconds. */
function minute(time) {
  return `${time.slice(0, 16).replace("T", " ")} UTC`;
}

/** How far the real total time was from the forecast. */
function forecastText({ seconds, confidence, made, error_percent, inside }) {
  const distance = `${significant(Math.abs(error_percent), 3)} % ${error_percent < 0 ? "below" : "above"} the real total time`;
  const where = `which is ${inside ? "inside" : "outside"} its ${fixed(100 * confidence, 0)} % interval`;
  return `${withRange(seconds, formatSeconds)}, made on ${made}: ${distance}, ${where}`;
}

function countOf(count, noun) {
  return count === 0 ? `no ${noun}s` : `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** "value (low – high)". */
function withRange([value, low, high], format) {
  const range = formatRange(low, high, format);
  return range ? `${format(value)} (${range})` : format(value);
}
