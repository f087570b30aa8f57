"use strict";
// One row per method: box plots of clients, bars of cost.
const ROW = 30;
const nameWidth = (items) => Math.min(178, 14 + 7.4 * Math.max(...items.map((item) => shortened(item.method, 22).length)));

function rowLabel(svg, item, x, y) {
  svg.append(label(shortened(item.method, 22), x, y + 4, { "text-anchor": "end", fill: "var(--ink)" }));
}

DRAW.boxes = (chart, width) => {
  const { data } = chart, boxes = data.boxes.filter(isShown);
  const svg = canvasOf(chart, width, 50 + ROW * Math.max(1, boxes.length));
  if (!boxes.length) return svg;
  const box = { left: nameWidth(boxes), right: width - 22, top: 6, bottom: 10 + ROW * boxes.length };
  const ends = boxes.flatMap((b) => [b.low, b.high, ...b.outliers.map((o) => o[2])]);
  const [low, high] = data.share ? [0, 1] : range(ends, false);
  const x = scale(low, high, box.left, box.right);
  axisX(svg, x, box, ticks(low, high, Math.max(3, width / 130)), data.y, (v) => tickText(v, data.share));
  boxes.forEach((b, i) => {
    const y = box.top + ROW * (i + 0.5) + 2, methodColor = color(b.method), thin = { stroke: methodColor, "stroke-width": 1.6 };
    rowLabel(svg, b, box.left - 8, y);
    svg.append(
      line(x(b.low), y, x(b.q1), y, thin), line(x(b.q3), y, x(b.high), y, thin),
      line(x(b.low), y - 5, x(b.low), y + 5, thin), line(x(b.high), y - 5, x(b.high), y + 5, thin),
      svgNode("rect", {
        x: x(b.q1), y: y - 9, width: Math.max(1, x(b.q3) - x(b.q1)), height: 18, fill: methodColor,
        "fill-opacity": 0.25, stroke: methodColor, "stroke-width": 1.6, class: "box",
      }),
      line(x(b.median), y - 9, x(b.median), y + 9, { stroke: methodColor, "stroke-width": 3 }),
      svgNode("path", { d: `M${x(b.mean)} ${y - 4}l4 4l-4 4l-4 -4z`, fill: "var(--ink)" }),
    );
    for (const o of b.outliers) {
      svg.append(svgNode("circle", { cx: x(o[2]), cy: y, r: 2.6, fill: "none", stroke: methodColor, "stroke-width": 1.2 }));
    }
    const area = svgNode("rect", { x: 0, y: y - ROW / 2, width, height: ROW, fill: "transparent", class: "hover" });
    svg.append(area);
    follow(svg, area, (px, _, event) => {
      const near = b.outliers.find((o) => Math.abs(x(o[2]) - px) < 5);
      const rows = near
        ? [[`client ${near[0]}, seed ${near[1]}`, number(near[2], data.share)]]
        : [["largest", b.high], ["upper quartile", b.q3], ["median", b.median], ["mean", b.mean], ["lower quartile", b.q1], ["smallest", b.low]]
          .map(([name, value]) => [name, number(value, data.share)]);
      showTip(event, `${b.method} (${b.count} clients)`, rows);
    });
  });
  return svg;
};

DRAW.bars = (chart, width) => {
  const panels = chart.data.panels.map((p) => ({ ...p, bars: p.bars.filter(isShown) }));
  const rows = Math.max(1, panels[0].bars.length), beside = width > 640;
  const each = ROW * rows + 56, height = beside ? each : each * panels.length;
  const svg = canvasOf(chart, width, height);
  if (!panels[0].bars.length) return svg;
  panels.forEach((panel, p) => {
    const frame = beside
      ? { left: (p * width) / panels.length, right: ((p + 1) * width) / panels.length - 12, top: 4 }
      : { left: 0, right: width - 8, top: p * each + 4 };
    drawPanel(svg, panel, frame, rows);
  });
  return svg;
};

function barText(bar) {
  if (bar.mean === null) return "never";
  const reached = bar.values.length < bar.seeds ? ` (${bar.values.length}/${bar.seeds})` : "";
  return number(+bar.mean.toPrecision(3)) + reached;
}

function drawPanel(svg, panel, frame, rows) {
  const room = 14 + 7 * Math.max(...panel.bars.map((b) => barText(b).length));
  const box = { left: frame.left + nameWidth(panel.bars), right: frame.right - room, top: frame.top, bottom: frame.top + ROW * rows + 4 };
  const top = Math.max(...panel.bars.flatMap((b) => b.values), 1e-9);
  const x = scale(0, top, box.left, box.right);
  axisX(svg, x, box, ticks(0, top, 4), panel.label, (v) => tickText(v));
  panel.bars.forEach((b, i) => {
    const y = box.top + ROW * (i + 0.5) + 2, methodColor = color(b.method);
    rowLabel(svg, b, box.left - 8, y);
    const far = b.values.length ? Math.max(...b.values) : 0;
    if (b.mean !== null) {
      svg.append(svgNode("rect", { x: box.left, y: y - 9, width: Math.max(1, x(b.mean) - box.left), height: 18, fill: methodColor, "fill-opacity": 0.75, class: "bar" }));
      for (const value of b.values) svg.append(svgNode("circle", { cx: x(value), cy: y, r: 2.6, fill: "var(--paper)", stroke: "var(--ink)" }));
    }
    svg.append(label(barText(b), x(far) + 7, y + 4, { fill: "var(--ink)" }));
    const area = svgNode("rect", { x: frame.left, y: y - ROW / 2, width: frame.right - frame.left, height: ROW, fill: "transparent", class: "hover" });
    svg.append(area);
    follow(svg, area, (_x, _y, event) => showTip(event, b.method, [
      [`mean ${panel.label}`, b.mean === null ? "never" : number(b.mean)],
      ["each seed", b.values.map((v) => number(v)).join(", ") || "–"],
      ["reached with", `${b.values.length} of ${b.seeds} seeds`],
    ]));
  });
}
