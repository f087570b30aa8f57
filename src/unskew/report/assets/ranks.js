"use strict";
// A diagram of critical differences: every method's line leads from its mean rank on the axis down
// to its name. Thick bars join methods whose ranks do not differ significantly.
DRAW.ranks = (chart, width) => {
  const { data } = chart, rows = data.rows.filter(isShown);
  const axis = 54, first = axis + 12 + 9 * data.groups.length;
  const svg = canvasOf(chart, width, first + ROW * Math.max(1, rows.length) + 4);
  if (!rows.length) return svg;
  const left = nameWidth(rows), right = width - 40, x = scale(1, data.worst, left, right);
  const ink = { stroke: "var(--ink)" };
  svg.append(
    line(x(1), 14, x(1 + data.difference), 14, { ...ink, "stroke-width": 2, class: "critical" }),
    line(x(1), 10, x(1), 18, ink),
    line(x(1 + data.difference), 10, x(1 + data.difference), 18, ink),
    label(`critical difference ${data.difference.toFixed(2)}`, left, 31),
    line(left, axis, right, axis, ink),
  );
  for (const rank of ticks(1, data.worst, Math.max(3, width / 130)).filter(Number.isInteger)) {
    svg.append(
      line(x(rank), axis - 5, x(rank), axis, ink),
      label(String(rank), x(rank), axis - 8, { "text-anchor": "middle" }),
    );
  }
  rows.forEach((r, i) => {
    const y = first + ROW * (i + 0.5), tint = color(r.method);
    rowLabel(svg, r, left - 8, y);
    svg.append(
      svgNode("path", { d: `M${x(r.rank)},${axis}V${y}H${left}`, fill: "none", stroke: tint, "stroke-width": 1.8 }),
      svgNode("circle", { cx: x(r.rank), cy: axis, r: 4.5, fill: tint, class: "rank" }),
      label(r.rank.toFixed(2), left + 4, y - 3),
    );
  });
  data.groups.forEach(([from, to], i) => {
    const y = axis + 11 + 9 * i;
    svg.append(line(x(from), y, Math.max(x(to), x(from) + 3), y, { ...ink, "stroke-width": 4, class: "group" }));
  });
  rows.forEach((r, i) => {
    const area = svgNode("rect", { x: 0, y: first + ROW * i, width, height: ROW, fill: "transparent", class: "hover" });
    svg.append(area);
    follow(svg, area, (_x, _y, event) => showTip(event, r.method, [["mean rank", number(r.rank)], ...r.federations.map(([name, rank]) => [name, number(rank)])]));
  });
  return svg;
};
