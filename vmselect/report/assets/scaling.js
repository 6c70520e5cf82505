// Time and cost against the number of GPUs: the same numbers and sentences as vmselect/ranking/views.py. A test compares them.

const GPU_MODELS_DESCRIBED = 3;

/**
 * The GPU models of the rows, that with the best rank first: {gpu, counts}. Each of `counts`, in ascending order, is
 * {gpus, fastest, cheapest, speedUp, efficiency}; the last two are relative to the fastest row with one GPU, or null.
 */
function scalingOf(rows) {
  const models = new Map();
  for (const row of rows) {
    const { gpu_model: gpu, gpus } = row.candidate;
    if (!gpus) continue;
    if (!models.has(gpu)) models.set(gpu, new Map());
    const counts = models.get(gpu);
    const found = counts.get(gpus) ?? counts.set(gpus, { gpus, fastest: row, cheapest: row }).get(gpus);
    if (row.seconds < found.fastest.seconds) found.fastest = row;
    if (row.cost_usd < found.cheapest.cost_usd) found.cheapest = row;
  }
  const ranked = ([, counts]) => Math.min(...[...counts.values()].flatMap(({ fastest, cheapest }) => [fastest.rank, cheapest.rank]));
  return [...models].sort((a, b) => ranked(a) - ranked(b)).map(([gpu, counts]) => {
    const alone = counts.get(1)?.fastest.seconds ?? null;
    const rated = [...counts.values()].sort((a, b) => a.gpus - b.gpus).map((count) => {
      const speedUp = alone === null ? null : alone / count.fastest.seconds;
      return { ...count, speedUp, efficiency: speedUp === null ? null : speedUp / count.gpus };
    });
    return { gpu, counts: rated };
  });
}

/** The GPU models that were ranked with more than one number of GPUs. */
function scaledModels(rows) {
  return scalingOf(rows).filter(({ counts }) => counts.length > 1);
}

/** Sentences on the number of GPUs that is fastest and the number that costs least. */
function scalingText(rows) {
  const models = scaledModels(rows);
  const texts = models.slice(0, GPU_MODELS_DESCRIBED).map(describeGpu);
  const more = models.length - texts.length;
  if (more) texts.push(`${more} more GPU model${more > 1 ? "s were" : " was"} ranked with several numbers of GPUs.`);
  return texts.join(" ");
}

function describeGpu({ gpu, counts }) {
  const least = (value) => counts.reduce((a, b) => (value(b) < value(a) ? b : a));
  const fastest = least((count) => count.fastest.seconds);
  const cheapest = least((count) => count.cheapest.cost_usd);
  const many = ({ gpus }) => `${gpus} GPU${gpus === 1 ? "" : "s"}`;
  const times = fastest.gpus > 1 && fastest.speedUp !== null
    ? ` (${significant(fastest.speedUp, 2)} times as fast as on 1 GPU, efficiency ${formatChance(Math.min(1, fastest.efficiency))})`
    : "";
  const limit = fastest === counts.at(-1) ? ", the largest number ranked" : "; more GPUs make it slower";
  const both = fastest === cheapest ? " and costs least" : "";
  const cost = fastest === cheapest ? "" : ` It costs least on ${many(cheapest)}.`;
  return `${gpu}: the training is fastest${both} on ${many(fastest)}${times}${limit}.${cost}`;
}
