// Parts that all pages share: subject, theme, printing, download of the data, and redrawing at another width.

const page = (id) => document.getElementById(id);
const dataText = await unpack(page("data").textContent);

/** The text that is compressed (zlib) and in base64, so that a page of many machines stays small. */
async function unpack(packed) {
  if (typeof DecompressionStream === "undefined") {
    replace(page("page"), "This page needs a browser of 2023 or newer.");
    throw new Error("DecompressionStream is missing");
  }
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

function showSubject(subject) {
  replace(page("subject"), subject.flatMap((part, i) => [i ? " · " : "", name(part)]));
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  page("theme").textContent = dark ? "Light" : "Dark";
  page("theme").setAttribute("aria-pressed", String(dark));
}

function download() {
  const address = URL.createObjectURL(new Blob([dataText], { type: "application/json" }));
  h("a", { href: address, download: "vmselect-report.json" }).click();
  URL.revokeObjectURL(address);
}

/** Connect the buttons at the top of the page and the tooltip. */
function buildTools(subject) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches);
  dark.addEventListener("change", (event) => setTheme(event.matches));
  page("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
  page("print").addEventListener("click", () => window.print());
  page("download").addEventListener("click", download);
  tooltip.listen();
  showSubject(subject);
}

function onNewWidth(act) {
  let width = document.documentElement.clientWidth;
  new ResizeObserver(() => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    act();
  }).observe(document.documentElement);
}
