// Builds the report page. Everything on it is computed from the settings.

const report = readReport(JSON.parse(dataText));
const state = { settings: structuredClone(report.initial), view: null };
// Without any candidate, no setting can change the result: the page shows only why, and what to do.
const isEmpty = report.candidates.length === 0;
const EXPLAINING = ["findings", "excluded"];
let pending = false;

function change(changes) {
  Object.assign(state.settings, changes);
  // Several changes within a frame, as from a dragged slider, are drawn once.
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    update();
  });
}

function update() {
  const { settings } = state;
  const ranked = rank(report.candidates, settings, report.excluded);
  nameCandidates(ranked.everyone.map((row) => row.candidate));
  state.view = { ...ranked, candidates: report.candidates, settings };
  replace(page("verdict"), verdictNodes(state.view));
  replace(page("aside"), isEmpty ? [] : asideNodes(state.view, report.payload.findings));
  showControls(settings);
  sections.forEach((show) => show(state.view));
  document.querySelectorAll("svg.chart").forEach((chart) => tooltip.reach(chart));
}

function buildSections(host) {
  const wanted = SECTIONS.filter(({ id, shown }) => (!isEmpty || EXPLAINING.includes(id)) && (shown?.(report) ?? true));
  return wanted.map(({ id, title, lede, build }) => {
    const heading = h("h2", { id: `${id}-title` }, title);
    const intro = lede ? h("p", { class: "lede" }, lede) : null;
    const section = h("section", { id, class: "section", "aria-labelledby": heading.id }, heading, intro);
    host.append(section);
    return build(section, report) ?? (() => {});
  });
}

buildTools(report.payload.page.subject);
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

// For tests and other scripts: the report, the current view, and the ranking at any settings.
window.vmselect = {
  report,
  state,
  set(changes) {
    Object.assign(state.settings, changes);
    update();
  },
  rank: (changes) => rank(report.candidates, { ...report.initial, ...changes }, report.excluded),
  leaders: (field, most) => findLeaders(feasibleOf(state.view), state.settings, field, most),
  format: { seconds: formatSeconds, usd: formatUsd },
  readyMilliseconds: performance.now(),
};
