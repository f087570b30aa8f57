"use strict";
// Puts the pictures in their places, hides methods, and hands pictures out as files.
function drawAll() {
  draw((place) => Math.max(280, Math.floor(place.clientWidth)));
}

// On paper, where two figures may stand beside each other, text must not shrink with them.
function drawForPaper() {
  draw((place) => (place.closest(".wide") ? 700 : 390));
}

function draw(widthOf) {
  hideTip();
  for (const picture of DATA.charts) {
    const place = document.querySelector(`#${CSS.escape(picture.name)} .drawing`);
    place.replaceChildren(DRAW[picture.kind](picture, widthOf(place)));
  }
}

function swatch(method) {
  const svg = svgNode("svg", { class: "swatch", viewBox: "0 0 24 10", "aria-hidden": "true" });
  svg.append(line(0, 5, 24, 5, { stroke: colour(method), "stroke-width": 4, "stroke-dasharray": dash(method) }));
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

// An SVG that stands alone: the colours of the light page written out, on white.
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

function hand(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function handPng(name, svg) {
  const text = standalone(svg), image = new Image(), box = svg.viewBox.baseVal, factor = 3;
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = box.width * factor;
    canvas.height = box.height * factor;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => hand(name, blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function makeTools(picture) {
  const figure = document.getElementById(picture.name), tools = figure.querySelector(".tools");
  const drawn = () => figure.querySelector(".drawing svg");
  const ways = {
    SVG: () => hand(`${picture.name}.svg`, new Blob([standalone(drawn())], { type: "image/svg+xml" })),
    PNG: () => handPng(`${picture.name}.png`, drawn()),
  };
  if (picture.csv) ways.CSV = () => hand(`${picture.name}.csv`, new Blob([picture.csv], { type: "text/csv" }));
  for (const [name, act] of Object.entries(ways)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.title = `Save this figure as ${name}`;
    button.addEventListener("click", act);
    tools.append(button);
  }
}

makeLegend();
DATA.charts.forEach(makeTools);
drawAll();
let seen = innerWidth, waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === seen) return;
  seen = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(drawAll, 120);
});
addEventListener("beforeprint", drawForPaper);
addEventListener("afterprint", drawAll);
addEventListener("scroll", hideTip, { passive: true });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
