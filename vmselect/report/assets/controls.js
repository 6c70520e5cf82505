// The controls of objective and limits. Each change ranks the candidates again.

/** Fill the form. Calls `change` with the changed settings. Returns a function that shows given settings. */
function buildControls(form, { markets, initial, epochsFixed, settings, change, reset }) {
  const most = Math.max(100, 10 * initial.epochs);
  const toSlider = (epochs) => Math.round((1000 * Math.log(epochs)) / Math.log(most));
  const fromSlider = (position) => Math.max(1, Math.round(most ** (position / 1000)));

  const epochs = h("input", { type: "number", id: "epochs", class: "short", min: 1, step: 1, inputmode: "numeric" });
  const epochsSlider = h("input", { type: "range", min: 0, max: 1000, "aria-label": "Number of epochs, as a slider" });
  const weight = h("input", { type: "range", id: "weight", min: 0, max: 100, step: 1 });
  const weightText = h("output", { for: "weight" });
  const market = h("select", { id: "market" }, markets.map((value) => h("option", { value }, marketText(value))));
  const amount = { type: "number", min: 0, step: "any", placeholder: "none", inputmode: "decimal" };
  const deadline = h("input", { id: "deadline", ...amount });
  const budget = h("input", { id: "budget", ...amount });
  const co2 = measuresOf(initial).includes(CO2) ? h("input", { id: "co2-limit", ...amount }) : null;

  const field = (id, caption, body, extra) => h("div", { class: `field${extra?.wide ? " wide" : ""}` },
    h("label", { for: id }, caption, extra?.output), body);
  const end = (text) => h("span", { "aria-hidden": "true" }, text);
  const between = (left, slider, right) => h("div", { class: "pair" }, end(left), slider, end(right));
  replace(form,
    epochsFixed ? null : field("epochs", "Number of epochs", h("div", { class: "pair" }, epochs, epochsSlider), { wide: true }),
    field("weight", "Objective", between("cost", weight, "time"), { wide: true, output: weightText }),
    markets.length > 1 ? field("market", "Market", market) : null,
    field("deadline", "Deadline in hours", deadline),
    field("budget", "Budget in USD", budget),
    co2 ? field("co2-limit", "CO2 limit in kg", co2) : null,
    h("button", { type: "button", id: "reset", onclick: reset }, "Reset"),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  const limit = (input) => (input.value.trim() === "" || !(Number(input.value) > 0) ? null : Number(input.value));
  epochs.addEventListener("input", () => {
    const count = Math.floor(Number(epochs.value));
    if (count >= 1 && count <= 1e9) change({ epochs: count });
  });
  epochsSlider.addEventListener("input", () => change({ epochs: fromSlider(Number(epochsSlider.value)) }));
  weight.addEventListener("input", () => change({ weights: weightsOf(Number(weight.value), settings().weights) }));
  market.addEventListener("change", () => change({ market: market.value }));
  deadline.addEventListener("input", () => change({ deadline_hours: limit(deadline) }));
  budget.addEventListener("input", () => change({ budget_usd: limit(budget) }));
  co2?.addEventListener("input", () => change({ co2_limit_kg: limit(co2) }));

  return function show(settings) {
    // A field that is being typed in is left alone, so that the cursor stays where it is.
    const put = (input, value) => document.activeElement === input || (input.value = value ?? "");
    put(epochs, settings.epochs);
    put(epochsSlider, toSlider(settings.epochs));
    put(weight, timePercent(settings.weights));
    put(market, settings.market);
    put(deadline, settings.deadline_hours);
    put(budget, settings.budget_usd);
    if (co2) put(co2, settings.co2_limit_kg);
    weightText.textContent = weightsText(settings.weights);
  };
}

/** Weights in which time has this percentage of cost and time together; those of other measures stay. */
function weightsOf(timePercent, weights) {
  const others = Object.fromEntries(OPTIONAL.filter(({ name }) => weights[name]).map(({ name }) => [name, weights[name]]));
  const rest = 1 - Object.values(others).reduce((sum, weight) => sum + weight, 0);
  return { cost: (rest * (100 - timePercent)) / 100, time: (rest * timePercent) / 100, ...others };
}

function timePercent({ cost: money, time }) {
  return money + time > 0 ? Math.round((100 * time) / (money + time)) : 0;
}

function weightsText(weights) {
  const weighed = MEASURES.filter(({ name }) => weights[name]).map(({ name, word }) => [word ?? name, weights[name]]);
  if (weighed.length === 1) return `${weighed[0][0]} only`;
  return weighed.map(([word, weight]) => `${formatShare(weight)} ${word}`).join(", ");
}
