"use strict";
// Draws the charts, hides methods, and saves charts as files.
function drawAll() {
  draw((slot) => Math.max(280, Math.floor(slot.clientWidth)));
}

// In print, where two figures may share a row, the text must not shrink with them.
function drawForPaper() {
  draw((slot) => (slot.closest(".wide") ? 700 : 390));
}

function draw(widthOf) {
  hideTip();
  for (const chart of DATA.charts) {
    const slot = document.querySelector(`#${CSS.escape(chart.name)} .drawing`);
    slot.replaceChildren(DRAW[chart.kind](chart, widthOf(slot)));
  }
}

function swatch(method) {
  const svg = svgNode("svg", { class: "swatch", viewBox: "0 0 24 10", "aria-hidden": "true" });
  svg.append(line(0, 5, 24, 5, { stroke: color(method), "stroke-width": 4, "stroke-dasharray": dash(method) }));
  return svg;
}

function makeLegend() {
  const legend = document.getElementById("legend");
  for (const method of DATA.methods) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(swatch(method), method);
    button.addEventListener("click", () => {
      if (!hidden.delete(method)) hidden.add(method);
      button.setAttribute("aria-pressed", String(!hidden.has(method)));
      drawAll();
    });
    legend.append(button);
  }
  document.querySelectorAll("td[data-method]").forEach((cell) => cell.prepend(swatch(cell.dataset.method)));
}

// A standalone SVG: with the colours of the light page, on white.
function standalone(svg) {
  const light = document.createElement("div");
  light.className = "light";
  document.body.append(light);
  const style = getComputedStyle(light);
  const copy = svg.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "Helvetica, Arial, sans-serif");
  copy.querySelectorAll(".hover[fill=transparent]").forEach((node) => node.remove());
  copy.prepend(svgNode("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
  const text = new XMLSerializer().serializeToString(copy)
    .replace(/var\((--[a-z0-9]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  light.remove();
  return text;
}

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function savePng(name, svg) {
  const text = standalone(svg), image = new Image(), box = svg.viewBox.baseVal, factor = 3;
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = box.width * factor;
    canvas.height = box.height * factor;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(name, blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function makeTools(chart) {
  const figure = document.getElementById(chart.name), tools = figure.querySelector(".tools");
  const drawn = () => figure.querySelector(".drawing svg");
  const formats = {
    SVG: () => save(`${chart.name}.svg`, new Blob([standalone(drawn())], { type: "image/svg+xml" })),
    PNG: () => savePng(`${chart.name}.png`, drawn()),
  };
  if (chart.csv) formats.CSV = () => save(`${chart.name}.csv`, new Blob([chart.csv], { type: "text/csv" }));
  for (const [name, saveAs] of Object.entries(formats)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.title = `Save this chart as ${name}`;
    button.addEventListener("click", saveAs);
    tools.append(button);
  }
}

makeLegend();
DATA.charts.forEach(makeTools);
drawAll();
let lastWidth = innerWidth, timer = 0;
addEventListener("resize", () => {
  if (innerWidth === lastWidth) return;
  lastWidth = innerWidth;
  clearTimeout(timer);
  timer = setTimeout(drawAll, 120);
});
addEventListener("beforeprint", drawForPaper);
addEventListener("afterprint", drawAll);
addEventListener("scroll", hideTip, { passive: true });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
