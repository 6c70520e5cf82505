// The first screen below the headline: time, cost, probability and GPU memory of the choice, and the next step.

/** Marks of the basis of a time, from the least to the most certain. */
const BASES = {
  described: "predicted from the description", predicted: "predicted from probes", interpolated: "between probes",
  extrapolated: "beyond probes", measured: "measured",
};

/** A small sign for the basis of a time: dashed and hollow if described, hollow if predicted, filled if measured. */
function basisMark(basis, text = null) {
  const words = BASES[basis] ?? basis;
  const label = text ? { "aria-hidden": "true" } : { role: "img", "aria-label": words, title: words };
  const sign = h("i", { class: `basis ${basis in BASIS_MARKS ? basis : "measured"}`, ...label });
  return text ? [sign, h("span", null, text)] : [sign];
}

/** The kinds of marks among `rows` as entries of a legend. */
function basisLegend(rows) {
  const used = new Set(rows.map(({ candidate }) => candidate.basis));
  return Object.keys(BASES).filter((basis) => used.has(basis)).map((basis) => h("li", null, basisMark(basis, BASES[basis])));
}

function tile(title, value, sub, foot, more) {
  return h("div", { class: "tile" },
    h("p", { class: "kind" }, title), h("p", { class: "value" }, value), h("p", { class: "sub" }, sub), more ?? null,
    h("p", { class: "foot-note" }, foot));
}

/** The tiles of the choice; an empty list without one. */
function tileNodes(view) {
  const { rows, settings } = view;
  if (!rows.length) return [];
  const [best] = rows;
  const spread = ({ fields, format }) => {
    const [value, low, high] = fields.map((field) => format(best[field]));
    const range = `${low} – ${high}`;
    const promised = `with ${formatShare(settings.confidence)} probability`;
    return best.candidate.interval_only ? [h("span", { class: "range" }, range), promised] : [value, range];
  };
  const { batch_size: size, basis } = best.candidate;
  const run = `${countEpochs(best.epochs)}${size ? ` at batch ${formatCount(size)}` : ""}`;
  const described = basis === "described";
  const pending = isPending(view);
  const chance = described && !pending ? chanceOfChoice(view) : best.chance;
  const rivals = rows.filter((row) => row.tied && row.rank > 1).length;
  return [
    tile("Time", ...spread(TIME), [run, h("br"), basisMark(basis, BASES[basis])]),
    tile("Cost", ...spread(COST), `${formatUsd(best.candidate.usd_per_hour)} per hour` +
      (best.candidate.price_date ? `, price of ${best.candidate.price_date}` : "")),
    rows.length > 1 ? tile("Chance", pending ? PENDING : formatChance(chance), claimText(best, settings),
      pending ? "being computed" : rivals ? `${formatCount(rivals)} other${rivals > 1 ? "s" : ""} of ${formatCount(rows.length)} may be` : `of ${formatCount(rows.length)} candidates`,
      h("div", { class: "meter", "aria-hidden": "true" }, pending ? null : meterPart(0, chance, "fill"))) : null,
    memoryTile(best, view.memory),
  ];
}

/** A part of a meter, from one share of its width to another. The policy of the page forbids style attributes. */
function meterPart(from, to, kind) {
  const part = h("i", { class: kind });
  part.style.left = `${100 * Math.min(1, Math.max(0, from))}%`;
  part.style.width = `${100 * Math.max(0.004, Math.min(1, to) - Math.min(1, Math.max(0, from)))}%`;
  return part;
}

/** Whether the training fits into the memory of the GPU of a row; null if that is unknown. */
function memoryTile({ candidate }, memory) {
  const perGpu = Math.floor((candidate.batch_size ?? 0) / Math.max(1, candidate.gpus));
  const [need, has] = [memory?.needs[perGpu], memory?.gpus[candidate.instance_type]];
  if (!need || !has) return null;
  const [peak, low, high] = need;
  const gib = (value) => `${significant(value, value < 10 ? 2 : 3)} GiB`;
  const fits = high <= USABLE_SHARE * has ? "fits" : peak <= USABLE_SHARE * has ? "probably fits" : "may not fit: probe first";
  const range = low < high ? `${gib(low)} – ${gib(high)} needed` : "needed";
  const bar = h("div", { class: "meter", "aria-hidden": "true" }, meterPart(low / has, high / has, "range"), meterPart(peak / has - 0.005, peak / has + 0.005, "mark"));
  return tile("GPU memory", [fits === "fits" ? "Fits" : "Tight"], `about ${gib(peak)} of ${gib(has)}${candidate.gpu_model ? ` (${candidate.gpu_model})` : ""}`, fits === "fits" ? range : `${fits}, ${range}`, bar);
}

/** Share of the nominal memory of a GPU that a training can use: error correction and context take the rest. */
const USABLE_SHARE = 0.9;

function nextStepBox(...parts) {
  return h("div", { class: "next" }, h("p", { class: "kind" }, "Next step"), ...parts);
}

/** The next step: the probe that is worth its price with its command, or to rent the choice. */
function nextNodes(view) {
  const { rows } = view;
  if (!rows.length) return [];
  const probe = nextProbeOf(view);
  const [best] = rows;
  const text = (...parts) => h("p", { class: "what" }, ...parts);
  if (!probe) {
    if (!isUnprobed(best.candidate) || rows.length < 2) return [];
    return [nextStepBox(text("Rent it. No probe is recommended."),
      commandNode(`vmselect probe --instance-type ${quoted(best.candidate.instance_type)} ${view.program}`, "To check the estimate there:"))];
  }
  const { candidate } = probe.row;
  const gpus = candidate.gpus > 1 ? ` with ${formatCount(candidate.gpus)} GPUs` : "";
  const raised = best.candidate.basis === "described"
    ? `, raises the chance of choosing the best GPU from ${formatChance(chanceOfChoice(view))} to ${formatChance(chanceAfterProbe(view, candidate))}` : "";
  return [nextStepBox(
    text("Probe ", h("b", null, name(candidate.instance_type)), gpus, candidate.gpu_model ? ` (${gpuText(probe.row)})` : "",
      " at ", name([view.providers[candidate.provider] ?? candidate.provider, candidate.region].filter(Boolean).join(" ")), ": ",
      `about ${formatUsd(probe.cost)}${raised}, and saves ${formatUsd(probe.saving)} of this training on average.`),
    commandNode(`vmselect probe --instance-type ${quoted(candidate.instance_type)} ${view.program}`, "On that machine:"),
  )];
}

/** A command line with a button that copies it. */
function commandNode(command, label) {
  const button = h("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return h("div", { class: "command" }, h("span", null, label), h("code", { tabindex: 0 }, command), button);
}

/** A word for a shell. */
function quoted(word) {
  return /^[\w.+@:/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
