// Filters of the ranking table: words, provider, region, GPU, and the highest price per hour.

const CHOICES = [
  { id: "provider", title: "All providers", of: ({ candidate }) => candidate.provider },
  { id: "region", title: "All regions", of: ({ candidate }) => candidate.region },
  { id: "gpu", title: "All GPUs", of: (row) => gpuText(row) },
];

/** Build the filters in `host`. Calls `change` when one changes. Returns {passes, show}. */
function buildFilters(host, change, providers) {
  const words = h("input", { type: "search", id: "filter", placeholder: "Search machine, GPU, region", "aria-label": "Filter the table" });
  const price = h("input", {
    type: "number", id: "filter-price", min: 0, step: "any", inputmode: "decimal", placeholder: "Max $/h", "aria-label": "Highest price in USD per hour",
  });
  const front = h("input", { type: "checkbox", id: "front" });
  const selects = CHOICES.map(({ id, title }) => h("select", { id: `filter-${id}`, "aria-label": title }));
  const reset = h("button", { type: "button", id: "filter-reset", hidden: true }, "Clear filters");
  const wanted = { words: "", price: Infinity, front: false, chosen: ["", "", ""] };

  function read() {
    wanted.words = words.value.trim().toLowerCase();
    wanted.price = Number(price.value) > 0 ? Number(price.value) : Infinity;
    wanted.front = front.checked;
    wanted.chosen = selects.map((select) => select.value);
    reset.hidden = !wanted.words && wanted.price === Infinity && !wanted.front && !wanted.chosen.some(Boolean);
    change();
  }
  [words, price].forEach((input) => input.addEventListener("input", read));
  [front, ...selects].forEach((input) => input.addEventListener("change", read));
  reset.addEventListener("click", () => {
    [words, price, ...selects].forEach((input) => (input.value = ""));
    front.checked = false;
    read();
    words.focus();
  });
  host.append(words, ...selects, price, h("label", { class: "check" }, front, "Pareto front only"), reset);

  let shown = "";
  return {
    passes: (row) => (!wanted.front || row.pareto) && row.candidate.usd_per_hour <= wanted.price
      && (!wanted.words || row.candidate.searchable.includes(wanted.words))
      && CHOICES.every(({ of }, i) => !wanted.chosen[i] || of(row) === wanted.chosen[i]),
    /** Offer the values that `rows` have. A value that disappears is no longer chosen. */
    show(rows) {
      const values = CHOICES.map(({ of }) => [...new Set(rows.map(of))].sort());
      const key = JSON.stringify(values);
      if (key === shown) return;
      shown = key;
      selects.forEach((select, i) => {
        const kept = select.value;
        const option = (value) => h("option", { value }, CHOICES[i].id === "provider" ? providers[value] ?? value : value);
        replace(select, h("option", { value: "" }, CHOICES[i].title), values[i].map(option));
        select.value = values[i].includes(kept) ? kept : "";
        select.hidden = values[i].length < 2;
      });
      wanted.chosen = selects.map((select) => select.value);
    },
  };
}
