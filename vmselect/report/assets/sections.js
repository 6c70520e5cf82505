// The sections of the report page, in order. Each is {id, title, lede, shown?, build}: `build(host, report)` creates the
// empty section once and returns the function that shows a view.

const SECTIONS = [
  {
    id: "ranking",
    title: "Ranking",
    lede: "Best candidate first, with the interval below each time and cost.",
    build(host, report) {
      const { show, showChances } = buildTable(host, report);
      const note = h("p", { class: "lede" });
      host.append(note);
      return {
        show(view) {
          if (!view.rows.length) return;
          show(view.rows);
          note.textContent = scoreNote(view.rows, view.settings);
        },
        showChances,
      };
    },
  },
  {
    id: "stages",
    title: "What probes would change",
    shown: (report) => Boolean(report.payload.page.stages?.rows.length),
    build(host, report) {
      const { note, rows } = report.payload.page.stages;
      const titles = { title: "After", machine: "Rent", gpu: "GPU", time: "Time", interval: "Interval", cost: "Cost", chance: "Best" };
      const style = (field) => (["title", "machine", "gpu"].includes(field) ? "text" : null);
      const head = Object.entries(titles).map(([field, title]) => h("th", { scope: "col", class: style(field) }, title));
      const body = rows.map((row) => h("tr", null, Object.keys(titles).map((field) => h("td", { class: style(field) }, name(row[field])))));
      host.append(h("p", { class: "lede" }, note), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Decision after each probe" },
        h("table", null, h("thead", null, h("tr", null, head)), h("tbody", null, body))));
    },
  },
  {
    id: "time-cost",
    title: "Time against cost",
    lede:
      "Each point is a candidate; lower left is better. The dotted line joins the Pareto front: candidates that no other " +
      "candidate beats in both time and cost. Bars are intervals; with many candidates, those of the front.",
    build(host) {
      const chart = chartHost(host);
      const legend = h("ul", { class: "legend", "aria-label": "Kinds of candidates" });
      const note = h("p", { class: "lede" });
      host.append(legend, note);
      return (view) => {
        if (!view.rows.length) return;
        const bases = new Set(view.rows.map((row) => row.candidate.basis));
        const marks = Object.keys(BASES).filter((basis) => bases.has(basis)).map((basis) => [basis, BASES[basis]]);
        const kinds = [["best", "best"], ["pareto", "Pareto front"], ["plain", "other"], ...marks];
        replace(legend, kinds.map(([kind, text]) => h("li", null, h("i", { class: `round ${kind}` }), text)));
        const drawn = drawTimeCost(chart, view.rows, view.settings);
        const total = view.rows.length;
        note.textContent = drawn < total ? `Shown: the best ${formatCount(drawn)} of ${formatCount(total)} candidates.` : "";
      };
    },
  },
  {
    id: "epochs",
    title: "Time and cost by number of epochs",
    lede:
      "Start-up takes the same time for any number of epochs, so the best candidate can change with the number of epochs. " +
      "Rings mark these changes. Shown are candidates that are feasible at the chosen number of epochs.",
    shown: (report) => !report.studied,
    build(host, report) {
      const [time, money] = [panel(), panel()];
      host.append(h("div", { class: "pairs" }, time.box, money.box));
      return (view) => {
        if (!view.rows.length) return;
        const panels = [[time, "seconds", "Training time"], [money, "cost_usd", "Cost"]];
        const most = Math.max(10, 2 * view.settings.epochs, report.mostEpochs);
        const leaders = panels.map(([, field]) => findLeaders(feasibleOf(view), view.settings, field, most));
        const first = [...leaders.flat(), ...view.rows].map(({ candidate }) => candidate);
        const drawn = [...new Set(first)].slice(0, MAX_LINES);
        panels.forEach(([panel, field, caption], i) => {
          showEpochs(panel, view, { field, caption, most, drawn, leaders: leaders[i] });
        });
      };
    },
  },
  {
    id: "terms",
    title: "Terms of time and cost",
    build(host, report) {
      const lede = h("p", { class: "lede" });
      host.append(lede);
      const chart = chartHost(host);
      const legend = h("ul", { class: "legend", "aria-label": "Terms" });
      host.append(legend);
      return (view) => {
        if (!view.rows.length) return;
        const field = view.settings.weights.time > view.settings.weights.cost ? "seconds" : "cost_usd";
        const what = field === "seconds" ? "time" : "cost";
        lede.textContent = `The ${what} of the best candidates, split into terms such as initialization, steps and validation. The thin bar is the interval.`;
        const used = new Set(view.rows.slice(0, MAX_BARS).flatMap((row) => [...termSeconds(row).keys()]));
        const terms = report.terms.filter(({ id }) => used.has(id));
        drawTerms(chart, view.rows, field, terms);
        replace(legend, terms.map(({ slot, title }) => h("li", null, h("i", { class: `t${slot}` }), title)));
      };
    },
  },
  {
    id: "steps",
    title: "Measured steps",
    lede:
      "The duration of each recorded step, in order. The first steps are slower because of compilation and warm-up; the " +
      "estimate counts them once and does not average them with the steady steps.",
    shown: (report) => report.steps.length > 0,
    build: buildSteps,
  },
  {
    id: "findings",
    title: "Warnings and remedies",
    shown: (report) => report.findings.length > 0,
    empty: (view, report) => !concernedFindings(view, report).length,
    build(host, report) {
      const list = h("ul", { class: "findings" });
      host.append(list);
      return (view) => {
        const kinds = concernedFindings(view, report);
        replace(list, kinds.map(findingItem));
      };
    },
  },
  {
    id: "excluded",
    title: "Excluded",
    lede: "Candidates that are not ranked, with the reason.",
    empty: (view) => !excludedOf(view).length,
    build(host) {
      const body = h("tbody");
      const heading = (text) => h("th", { scope: "col", class: "text" }, text);
      const head = h("thead", null, h("tr", null, heading("Candidate"), heading("Reason")));
      const table = h("div", { class: "scroll" }, h("table", null, head, body));
      const note = h("p", { class: "lede" });
      host.append(table, note);
      return (view) => {
        const all = excludedOf(view);
        const cell = (content) => h("td", { class: "text", dir: "auto" }, content);
        replace(body, all.slice(0, 200).map(({ candidate, reason }) => h("tr", null, cell(name(candidate)), cell(withCode(reason)))));
        note.textContent = all.length > 200 ? `Shown: the first 200 of ${formatCount(all.length)} excluded candidates.` : "";
      };
    },
  },
  { id: "method", title: "How this was computed", empty: () => false, build: buildMethod },
];

/** The kinds of findings that concern the ranking or its candidates. */
function concernedFindings({ everyone }, { findings }) {
  const concerned = new Set(everyone.flatMap((row) => row.candidate.findings));
  const applies = ({ whole, number }) => whole || concerned.has(number);
  return findings
    .map((kind) => ({ ...kind, messages: kind.messages.filter(applies) }))
    .filter(({ messages }) => messages.length);
}

function excludedOf({ alwaysExcluded, unsold, excluded }) {
  return [...alwaysExcluded, ...unsold, ...excluded];
}

/** Why the score of the first row is not 1.00; an empty text if it is. */
function scoreNote([first], { weights }) {
  if (fixed(first.score, 2) === "1.00") return "";
  const aims = MEASURES.filter(({ name }) => weights[name]).map(({ aim }) => aim);
  const all = `${aims.length === 2 ? "both " : ""}the ${aims.join(" and the ")}`;
  return `The first row has the score ${fixed(first.score, 2)}, because no candidate has ${all}.`;
}

function chartHost(host) {
  const chart = h("div", { class: "chart-host" });
  host.append(chart);
  return chart;
}

function panel() {
  const title = h("h3");
  const chart = h("div", { class: "chart-host" });
  const note = h("p", { class: "lede" });
  return { title, chart, note, box: h("div", null, title, chart, note) };
}

function showEpochs({ title, chart, note }, { settings }, plan) {
  title.textContent = plan.caption;
  const best = plan.leaders.findLast((run) => run.from <= settings.epochs)?.candidate;
  drawEpochs(chart, plan.drawn, { settings, best, slotOf: colorSlots(plan.drawn), ...plan });
  replace(note, leaderNodes(plan.leaders, plan.field, plan.most));
}

function leaderNodes(leaders, field, most) {
  const what = field === "seconds" ? "fastest" : "cheapest";
  if (!leaders.length) return [];
  const [first] = leaders;
  if (leaders.length === 1) return [name(first.candidate.label), ` is the ${what} for every number of epochs up to ${formatCount(most)}.`];
  const span = ({ from, to }) => {
    if (to === most) return ` from ${formatCount(from)} epochs on`;
    return from === to ? ` at ${countEpochs(from)}` : ` for ${formatCount(from)} to ${formatCount(to)} epochs`;
  };
  const parts = leaders.map((run, i) => [i ? ", then " : "", name(run.candidate.label), span(run)]);
  return [`The ${what} is `, ...parts.flat(), "."];
}

const STEP_NAMES = {
  first: "first step (with compilation)", warmup: "warm-up", opening: "first step of a later epoch", steady: "steady step",
  partial: "partial batch",
};

function buildSteps(host, report) {
  const options = report.steps.map((steps, i) => h("option", { value: i }, steps.title));
  const choice = h("select", { id: "profile", "aria-label": "Profile" }, options);
  const toolbar = h("div", { class: "toolbar" }, h("label", { class: "check", for: "profile" }, "Profile", choice));
  const chart = h("div", { class: "chart-host" });
  const legend = h("ul", { class: "legend", "aria-label": "Kinds of step" });
  const note = h("p", { class: "lede" });
  host.append(toolbar, chart, legend, note);
  const show = () => {
    const steps = report.steps[Number(choice.value)];
    drawSteps(chart, steps);
    tooltip.reach(chart);
    const kinds = Object.keys(STEP_NAMES).filter((kind) => steps.label.includes(kind));
    replace(legend, kinds.map((kind) => h("li", null, h("i", { class: `step round ${kind}` }), STEP_NAMES[kind])));
    const [kept, all] = [steps.seconds.length, steps.readings];
    note.textContent = kept < all ? `Shown: ${formatCount(kept)} of ${formatCount(all)} readings.` : "";
  };
  choice.addEventListener("change", show);
  return show;
}

const MESSAGES_SHOWN = 3;

/** Findings of one kind: the first messages, the remedy once, and the machines that no message names. */
function findingItem({ messages, remedy, severity }) {
  const paragraph = (text, style) => h("p", { dir: "auto", class: style }, withCode(text));
  const texts = [...new Set(messages.map(({ text }) => text))];
  const shown = texts.length > MESSAGES_SHOWN + 1 ? texts.slice(0, MESSAGES_SHOWN) : texts;
  const rest = texts.length - shown.length;
  const about = [...new Set(messages.flatMap((message) => message.about))];
  return h("li", { class: severity },
    shown.map((text) => paragraph(text)),
    rest ? paragraph(`${formatCount(rest)} similar messages are not shown.`) : null,
    paragraph(remedy, "remedy"),
    about.length ? h("p", { class: "who" }, ...listNames(about, 6)) : null);
}

const FORMULA = `time(n)   = once + per epoch × n + first validation + later validation × (validations - 1)
low, high = time(n) ∓ √(a + b n + c n²)
cost      = time × USD per hour ÷ 3600
score     = Σ weight × value ÷ best value`;

function buildMethod(host, report) {
  const facts = report.facts.map(([term, fact]) => [h("dt", null, term), h("dd", { dir: "auto" }, fact)]);
  const leftOff = report.payload.page.omitted_candidates;
  if (leftOff) {
    const which = "candidates that are not among the best, the cheapest or the fastest";
    facts.push(h("dt", null, "Not on this page"), h("dd", null, `${formatCount(leftOff)} ${which}`));
  }
  host.append(
    h("dl", { class: "facts" }, facts),
    h("pre", { class: "formula", tabindex: 0, "aria-label": "Formulas" }, FORMULA),
    h("p", { class: "lede" },
      "n is the number of epochs. The probability of being best comes from " +
      `${formatCount(DRAWS)} random draws of all times. The page computes the ranking from the numbers embedded in it, with ` +
      "the same formulas as the Python library."),
  );
}
