"use strict";
// Shared by all charts: SVG nodes, scales, axes, colours, and the tooltip.
const DATA = JSON.parse(document.getElementById("report-data").textContent);
const hidden = new Set();
const DRAW = {};

function svgNode(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function canvasOf(chart, width, height) {
  return svgNode("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.title,
  });
}

function label(text, x, y, options) {
  return svgNode("text", { x, y, fill: "var(--soft)", "font-size": 12, ...options }, text);
}

function line(x1, y1, x2, y2, options) {
  return svgNode("line", { x1, y1, x2, y2, stroke: "var(--line)", ...options });
}

const isShown = (item) => !hidden.has(item.method);
const color = (method) => `var(--m${DATA.methods.indexOf(method) % 7})`;
const DASHES = ["none", "7 3", "2 3", "9 3 2 3"];
const dash = (method) => DASHES[Math.floor(DATA.methods.indexOf(method) / 7) % DASHES.length];

function scale(from, to, start, end) {
  const span = to - from || 1;
  return (value) => start + ((value - from) / span) * (end - start);
}

function ticks(from, to, count) {
  const rough = (to - from || Math.abs(to) || 1) / Math.max(1, count);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i++) found.push(i * step);
  return found;
}

function number(value, share) {
  if (value === null || value === undefined) return "–";
  if (share) return `${(100 * value).toFixed(1)} %`;
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(+value.toPrecision(size < 1 ? 3 : 4));
}

const tickText = (value, share) => share ? `${+(100 * value).toFixed(1)} %` : String(+value.toPrecision(6));

function shortened(text, length) {
  if (text.length <= length) return text;
  const half = Math.floor((length - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

function axisX(svg, scaleX, box, values, text, format) {
  for (const value of values) {
    const x = scaleX(value);
    svg.append(
      line(x, box.top, x, box.bottom, { "stroke-opacity": 0.6 }),
      label(format(value), x, box.bottom + 16, { "text-anchor": "middle" }),
    );
  }
  if (text) svg.append(label(text, (box.left + box.right) / 2, box.bottom + 33, { "text-anchor": "middle" }));
}

function axisY(svg, scaleY, box, values, format) {
  for (const value of values) {
    const y = scaleY(value);
    svg.append(
      line(box.left, y, box.right, y, { "stroke-opacity": 0.6 }),
      label(format(value), box.left - 6, y + 4, { "text-anchor": "end" }),
    );
  }
}

const TIP = document.getElementById("tip");

function showTip(event, head, rows) {
  const title = document.createElement("strong");
  title.textContent = head;
  TIP.replaceChildren(title);
  for (const [name, value, tint] of rows) {
    const row = document.createElement("div");
    const left = document.createElement("span");
    if (tint) {
      const dot = document.createElement("i");
      dot.style.background = tint;
      left.append(dot);
    }
    left.append(shortened(name, 30));
    const right = document.createElement("span");
    right.textContent = value;
    row.append(left, right);
    TIP.append(row);
  }
  TIP.style.display = "block";
  const frame = TIP.getBoundingClientRect();
  const flip = event.clientX + frame.width + 24 > innerWidth;
  const x = flip ? event.clientX - frame.width - 14 : event.clientX + 14;
  TIP.style.left = `${Math.max(4, x)}px`;
  TIP.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - frame.height - 4))}px`;
}

function hideTip() {
  TIP.style.display = "none";
}

// Calls back with the position of the pointer in the units of the drawing.
function follow(svg, target, onMove, onLeave) {
  const move = (event) => {
    const frame = svg.getBoundingClientRect();
    const factor = svg.viewBox.baseVal.width / frame.width;
    onMove((event.clientX - frame.left) * factor, (event.clientY - frame.top) * factor, event);
  };
  target.addEventListener("pointermove", move);
  target.addEventListener("pointerdown", move);
  target.addEventListener("pointerleave", () => { hideTip(); if (onLeave) onLeave(); });
}

// Cividis, which looks much the same with every kind of colour vision.
const SHADES = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"]
  .map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));

function shade(share) {
  const position = Math.max(0, Math.min(1, share)) * (SHADES.length - 1);
  const i = Math.min(SHADES.length - 2, Math.floor(position));
  return SHADES[i].map((value, c) => Math.round(value + (position - i) * (SHADES[i + 1][c] - value)));
}

function drawShades(svg, left, top, width, low, high) {
  const steps = 24;
  for (let i = 0; i < steps; i++) {
    const fill = `rgb(${shade(i / (steps - 1)).join(",")})`;
    svg.append(svgNode("rect", { x: left + (i * width) / steps, y: top, width: width / steps + 0.5, height: 10, fill }));
  }
  svg.append(
    label(low, left - 6, top + 9, { "text-anchor": "end" }),
    label(high, left + width + 6, top + 9),
  );
}
