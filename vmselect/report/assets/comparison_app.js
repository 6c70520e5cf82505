// The comparison page: text and tables are HTML, the script only draws the charts.

const content = JSON.parse(dataText);

function drawAll() {
  for (const host of document.querySelectorAll("[data-plot]")) {
    const plot = content.plots[Number(host.dataset.plot)];
    PLOTS[plot.kind](host, plot);
    tooltip.reach(host);
  }
}

buildTools(content.page.subject);
drawAll();
onNewWidth(drawAll);

// For tests and other scripts.
window.vmselect = { content };
