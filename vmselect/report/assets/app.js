// Builds the report page. Everything on it is computed from the settings.

const report = readReport(JSON.parse(dataText));
const state = { settings: structuredClone(report.initial), view: null };
// Without any candidate, no setting can change the result: the page shows only why, and what to do.
const isEmpty = report.candidates.length === 0;
const EXPLAINING = ["training", "findings", "excluded"];
/** Sections that are open at first; the others are below a fold. */
const UNFOLDED = ["ranking", "stages", "time-cost"];
/** Parts of the page that consist of probabilities. */
const DECIDING = ["remark", "next", "aside"];
const chances = new SlicedWork();
let frameRequested = false;

function change(changes) {
  Object.assign(state.settings, changes);
  // Several changes within a frame, as from a dragged slider, are drawn once.
  if (frameRequested) return;
  frameRequested = true;
  requestAnimationFrame(() => {
    frameRequested = false;
    update();
  });
}

/** Show the order of the candidates at once, and the probabilities as soon as they are computed. */
function update() {
  const settings = structuredClone(state.settings);
  const ranked = order(report.candidates, settings, report.excluded);
  nameCandidates(ranked.everyone.map((row) => row.candidate));
  const { probe, providers, memory, program } = report.payload.page;
  state.view = { ...ranked, candidates: report.candidates, settings, probe, providers, memory, program };
  showDecision(state.view);
  showControls(settings);
  sections.forEach(({ fold, show, empty }) => {
    fold.parentElement.hidden = empty(state.view, report);
    // What is folded is drawn when it is opened: a chart needs the width of the page, and changes stay fast.
    if (fold.open) show(state.view);
  });
  document.querySelectorAll("svg.chart").forEach((chart) => tooltip.reach(chart));
  chances.start(chanceWork(state.view), () => {
    showDecision(state.view);
    sections.forEach(({ fold, showChances }) => fold.open && showChances?.(state.view));
  });
}

/** The steps that complete a view: the probabilities, and the next probe, which depends on them. */
function* chanceWork(view) {
  Object.assign(view, yield* chanceSteps(view.rows, view.best, view.settings));
  view.nextProbe = view.rows.length ? yield* nextProbeSteps(view) : null;
}

/** Show what is above the controls. Until the probabilities are known, the parts that consist of them stay, but dimmed. */
function showDecision(view) {
  const pending = isPending(view);
  replace(page("verdict"), toNodes(headlineParts(view)));
  replace(page("tiles"), tileNodes(view));
  DECIDING.forEach((id) => page(id).toggleAttribute("data-pending", pending));
  page("verdict").setAttribute("aria-busy", String(pending));
  if (pending) {
    if (!page("next").hasChildNodes()) replace(page("next"), nextStepBox(h("p", { class: "what" }, "The probabilities are being computed.")));
    return;
  }
  replace(page("remark"), toNodes(summaryParts(view)));
  replace(page("next"), nextNodes(view));
  replace(page("aside"), isEmpty ? [] : asideNodes(view, report.payload.findings));
}

function buildSections(host) {
  const wanted = SECTIONS.filter(({ id, shown }) => (!isEmpty || EXPLAINING.includes(id)) && (shown?.(report) ?? true));
  return wanted.map(({ id, title, lede, build, empty = ({ rows }) => !rows.length }) => {
    const heading = h("h2", { id: `${id}-title` }, title);
    const intro = lede ? h("p", { class: "lede" }, lede) : null;
    const open = isEmpty || UNFOLDED.includes(id);
    const fold = h("details", { class: "fold", open }, h("summary", null, heading), intro);
    const section = h("section", { id, class: "section", "aria-labelledby": heading.id }, fold);
    host.append(section);
    const built = build(fold, report) ?? (() => {});
    // What shows probabilities is {show, showChances}; other sections are one function.
    const { show, showChances } = typeof built === "function" ? { show: built } : built;
    fold.addEventListener("toggle", () => {
      if (!fold.open) return;
      show(state.view);
      fold.querySelectorAll("svg.chart").forEach((chart) => tooltip.reach(chart));
    });
    return { fold, show, showChances, empty };
  });
}

/** Links to pages of other trainings. */
function buildTabs(host, tabs) {
  host.hidden = !tabs?.length;
  replace(host, (tabs ?? []).map(({ title, file, current }) => h("a", { href: file, "aria-current": current ? "page" : null }, title)));
}

buildTools(report.payload.page.subject);
buildTabs(page("tabs"), report.payload.page.tabs);
const showControls = buildControls(page("controls"), {
  markets: report.markets,
  initial: report.initial,
  epochsFixed: report.studied,
  settings: () => state.settings,
  change,
  reset: () => change(structuredClone(report.initial)),
});
if (isEmpty) page("controls").remove();
const sections = buildSections(page("sections"));
update();

onNewWidth(() => change({}));
addEventListener("beforeprint", () => {
  document.querySelectorAll("details.fold").forEach((fold) => (fold.open = true));
  update();
  chances.finish();
});

// For tests and other scripts: the report, the current view, and the ranking at any settings. `set` and `verdict` wait for
// the probabilities.
window.vmselect = {
  report,
  state,
  chances,
  verdict() {
    chances.finish();
    return verdictText(state.view);
  },
  set(changes) {
    Object.assign(state.settings, changes);
    update();
    chances.finish();
  },
  rank: (changes) => rank(report.candidates, { ...report.initial, ...changes }, report.excluded),
  leaders: (field, most) => findLeaders(feasibleOf(state.view), state.settings, field, most),
  format: { seconds: formatSeconds, usd: formatUsd },
  readyMilliseconds: performance.now(),
};
