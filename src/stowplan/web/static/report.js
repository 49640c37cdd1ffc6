// The entry of a report: draws the charts of the data block and makes tables sortable.

import { drawBars } from "./bar_chart.js";
import { drawHeatMap } from "./heat_map.js";
import { drawIntervals } from "./interval_chart.js";
import { drawLines } from "./line_chart.js";
import { drawReplay } from "./page/replay_chart.js";
import { makeSortable } from "./sortable_table.js";

const KINDS = { lines: drawLines, bars: drawBars, intervals: drawIntervals, heat: drawHeatMap, replay: drawReplay };

const charts = JSON.parse(document.getElementById("data").textContent);
for (const place of document.querySelectorAll("[data-chart]")) {
  const chart = charts[Number(place.dataset.chart)];
  place.replaceChildren();
  KINDS[chart.kind](place, chart);
}
for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
document.documentElement.dataset.ready = "";
