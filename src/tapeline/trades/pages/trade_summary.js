// The trade summary: total buy, total sell and net to settle over the market's day.
import { add, api, byId, clock, colour, complain, count, currencyPlaces, draw, element, empty, fill, follow, isZero, minus, money, options, readable, refreshing, same, table, zone, zoned } from "/static/tapeline.js";
import { causeOf, closeOnEscape, explain, moved } from "/static/why.js";

const SUMMARY = "trade_summary";
const ALL = "all terminals";
const MOST_NOTES = 20;
// A window of several terminals has the least certain status of them.
const STATUSES = ["restated", "open", "provisional", "final"];
const SHAPES = { restated: "star", open: "circle-open", provisional: "circle", final: "circle" };
const MARKS = { restated: "★ restated", open: "○ open", provisional: "◐ provisional", final: "● final" };
const page = byId("content");
const zones = JSON.parse(page.dataset.zones);
const state = { places: () => 2, pipeline: null, calendar: null, days: [], first: null, last: null };

// With several markets the calendar has a zone for each day. A currency uses the days of its own market.
const daysOf = (currency) => state.days.filter((one) => !one.zone || one.zone === (zones[currency] ?? Object.values(zones)[0]));

const selected = () => ({
  day: daysOf(byId("currency").value).find((one) => one.day === byId("day").value),
  currency: byId("currency").value,
  terminal: byId("terminal").value,
  mode: document.querySelector("[name=mode]:checked").value,
});

const places = () => state.places(selected().currency);

async function windowsAt(asReported) {
  const { day, currency, terminal } = selected();
  const where = [`window_start>=${day.starts_at}`, `window_start<${day.ends_at}`, `currency=${currency}`];
  if (terminal !== ALL) where.push(`terminal=${terminal}`);
  const found = await api(`read/${SUMMARY}`, {
    where, group: "window_start", sum: ["total_buy", "total_sell", "fees", "trades"], limit: 10000, as_reported: asReported,
  });
  let [buy, sell] = ["0", "0"];
  return found.rows.map((row) => {
    buy = add(buy, row.total_buy);
    sell = add(sell, row.total_sell);
    return {
      start: row.window_start, trades: row.trades, fees: row.fees,
      status: STATUSES.find((one) => (row._status ?? "").split(" ").includes(one)) ?? "final",
      windows: { buy: row.total_buy, sell: row.total_sell, net: minus(row.total_buy, row.total_sell) },
      running: { buy, sell, net: minus(buy, sell) },
    };
  });
}

function traces(rows, mode, faint) {
  const x = rows.map((row) => row.start);
  const words = { buy: "total buy", sell: "total sell", net: "net to settle" };
  const shape = { buy: ["solid", "circle", "/"], sell: ["dash", "square", "x"], net: ["dot", "diamond", "."] };
  return ["buy", "sell", "net"].map((name) => {
    const hue = colour(name === "net" ? "due" : name);
    const common = {
      x, y: rows.map((row) => Number(row[mode][name])), name: faint ? `${words[name]}, now` : words[name],
      customdata: rows.map((row) => [row.start, readable(row[mode][name], places()), row.status]),
      hovertemplate: "%{customdata[1]} (%{customdata[2]})", opacity: faint ? 0.35 : 1, showlegend: true,
    };
    if (mode === "windows" && name !== "net") {
      return { ...common, type: "bar", marker: { color: hue, pattern: { shape: shape[name][2], fgcolor: colour("paper"), size: 5 } } };
    }
    return {
      ...common, type: "scatter", mode: "lines+markers", line: { color: hue, dash: shape[name][0], width: faint ? 1 : 2.5 },
      marker: {
        color: hue, line: { color: hue, width: 1.5 },
        size: rows.map((row) => (row.status === "restated" ? 14 : 8)),
        symbol: rows.map((row) => (row.status === "restated" ? "star" : row.status === "open" ? `${shape[name][1]}-open` : shape[name][1])),
      },
    };
  });
}

// What changed a window after it was final: old value, new value and cause of its last revision.
async function noteRestated(rows) {
  const wanted = rows.filter((row) => row.status === "restated").slice(-MOST_NOTES);
  await Promise.all(wanted.map(async (row) => {
    const { revisions } = await api(`why/${SUMMARY}`, { key: keyOf(row) });
    const last = revisions.at(-1);
    if (!last) return;
    const parts = ["total_buy", "total_sell"].filter((name) => !isZero(String(last.change[name])));
    row.note = `restated, ${causeOf(last.cause)}: ${parts.map((name) => `${name.replace("total_", "")} ${moved(last, name, places())}`).join(", ")}`;
  }));
}

function restatedMarks(rows, mode) {
  const marked = rows.filter((row) => row.status === "restated");
  if (!marked.length) return [];
  return [{
    type: "scatter", mode: "markers", name: "restated", x: marked.map((row) => row.start), y: marked.map((row) => Number(row[mode].buy)),
    customdata: marked.map((row) => [row.start, row.note ?? "restated: click to see why", row.status]), hovertemplate: "%{customdata[1]}<extra></extra>",
    marker: { symbol: "star", size: 16, color: colour("ink"), line: { color: colour("paper"), width: 1 } },
  }];
}

function showTable(now, then, mode) {
  const old = new Map((then ?? []).map((row) => [row.start, row]));
  const differs = (row, name) => then && (!old.has(row.start) || !same(row[mode][name], old.get(row.start)[mode][name]));
  const cell = (row, name) => element("span", { class: differs(row, name) ? "differs" : "" }, money(row[mode][name], places()), differs(row, name) ? " ≠" : "");
  const columns = [
    { title: "window", cell: (row) => element("button", { type: "button", class: "plain", onclick: () => open(row) }, clock(row.start)) },
    { title: "total buy", number: true, cell: (row) => cell(row, "buy") },
    { title: "total sell", number: true, cell: (row) => cell(row, "sell") },
    { title: "net to settle", number: true, cell: (row) => cell(row, "net") },
    ...(then ? ["buy", "sell", "net"].map((name) => ({
      title: `${name}, as reported`, number: true, cell: (row) => (old.has(row.start) ? money(old.get(row.start)[mode][name], places()) : "–"),
    })) : []),
    { title: "trades", number: true, cell: (row) => count(row.trades) },
    { title: "status", class: "status", cell: (row) => element("span", { title: row.note }, MARKS[row.status]) },
  ];
  const words = mode === "running" ? "Running totals" : `Windows of ${width()}`;
  fill(byId("twin"), table(`${words}, ${selected().currency}, times in ${zone()}${then ? "; ≠ marks numbers that have changed since" : ""}`, columns, now));
}

function showFigures(rows) {
  const last = rows.at(-1);
  if (!last) return fill(byId("figures"));
  const fees = rows.reduce((sum, row) => add(sum, row.fees), "0");
  const figure = (words, value, name) => element("div", {}, element("dt", {}, words), element("dd", { class: name ?? "" }, value));
  fill(
    byId("figures"),
    figure("total buy", money(last.running.buy, places()), "buy"),
    figure("total sell", money(last.running.sell, places()), "sell"),
    figure("net to settle (buy − sell)", money(last.running.net, places()), "due"),
    figure("+ fees", money(fees, places())),
    figure("= due for this day's trades", money(add(last.running.net, fees), places())),
  );
}

function keyOf(row) {
  const { currency, terminal } = selected();
  return [row.start, terminal === ALL ? "*" : terminal, currency];
}

function open(row) {
  const { currency, terminal } = selected();
  explain(byId("why"), SUMMARY, keyOf(row), `${clock(row.start)} ${zone()}, ${terminal}, ${currency}`, places()).catch(complain);
}

// The time of each terminal's latest trade, from the last few batches, or more if a terminal was quiet.
async function terminalClocks(batches) {
  const since = Math.max(0, state.pipeline.batch - batches + 1);
  const found = await api("read/trades", { group: "terminal", max: "traded_at", since_batch: since });
  const known = byId("terminal").options.length - 1;
  return found.rows.length < known && batches < 100 && since > 0 ? terminalClocks(batches * 6) : found;
}

async function showBanner() {
  const banner = byId("banner");
  const found = await terminalClocks(3);
  const clocks = found.rows.map((row) => [row.terminal, new Date(row.traded_at).getTime()]);
  if (!clocks.length) return;
  const leading = Math.max(...clocks.map(([, at]) => at));
  const slowest = Math.min(...clocks.map(([, at]) => at));
  const complete = new Date(Math.floor(slowest / milliseconds(width())) * milliseconds(width())).toISOString();
  const lagging = clocks.filter(([, at]) => leading - at >= 1000).map(([name, at]) => `${name.toLowerCase()} lags ${length(leading - at)}`);
  banner.dataset.state = lagging.length ? "" : "good";
  banner.textContent = [`Complete up to ${clock(complete)} ${zone()}`, ...lagging].join(", ");
}

// The length of a window as declared, such as "15 minutes".
const width = () => state.pipeline?.summaries.find((one) => one.name === SUMMARY).width ?? "15 minutes";
const UNITS = { millisecond: 1, second: 1000, minute: 60_000, hour: 3_600_000, day: 86_400_000, week: 604_800_000 };

function milliseconds(text) {
  const [number, unit] = text.trim().toLowerCase().split(/\s+/);
  return Number(number) * UNITS[unit.replace(/s$/, "")];
}

function length(wait) {
  const seconds = Math.round(wait / 1000);
  return seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

// Fills the filters. Returns true if that changed the selected day.
async function readChoices() {
  [state.pipeline, state.places] = await Promise.all([api("pipeline"), currencyPlaces("currencies")]);
  const [days, used, currencies, terminals] = await Promise.all([
    state.calendar ?? api("read/market_days", { limit: 10000 }), api("values/running_totals/day"),
    api(`values/${SUMMARY}/currency`), api(`values/${SUMMARY}/terminal`),
  ]);
  const known = new Set(used.values);
  state.days = days.rows.filter((row) => known.has(row.day)).reverse();
  if (state.days.length) state.calendar = days;
  const main = page.dataset.mainCurrency;
  const chosen = byId("currency").value || (currencies.values.includes(main) ? main : currencies.values[0]);
  options(byId("currency"), currencies.values, chosen);
  const before = byId("day").value;
  const followed = !before || before === byId("day").options[0]?.value;
  const own = daysOf(chosen).map((row) => row.day);
  options(byId("day"), own, followed ? own[0] : before);
  options(byId("terminal"), [ALL, ...terminals.values], byId("terminal").value || ALL);
  state.first = Date.parse(state.pipeline.first_published_at);
  state.last = Date.parse(state.pipeline.published_at);
  return before !== byId("day").value;
}

// The slider goes from the first publication to the last; its right end is now.
function moment() {
  if (!byId("then").checked) return null;
  const share = Number(byId("slider").value) / 1000;
  // One millisecond more: publication times have microseconds, and the range includes the publication itself.
  return new Date(state.first + Math.ceil((state.last - state.first) * share) + 1).toISOString();
}

async function show() {
  const at = moment();
  page.dataset.zone = selected().day.zone ?? page.dataset.zone;
  byId("slider").disabled = !byId("then").checked;
  byId("moment").textContent = at ? zoned(at) : "now";
  const { mode } = selected();
  const [now, then] = await Promise.all([windowsAt(null), at ? windowsAt(at) : null]);
  const shown = then ?? now;
  await noteRestated(now);
  showTable(now, then, mode);
  showFigures(shown);
  await draw(
    byId("chart"), [...traces(shown, mode, false), ...(then ? traces(now, mode, true) : []), ...restatedMarks(shown, mode)],
    { barmode: "group", xaxis: ticks(shown), yaxis: { title: { text: selected().currency }, tickformat: "~s" } },
    (point) => open({ start: point.customdata[0] }),
  );
}

// Load the numbers first. The filters change rarely and are loaded after them.
const refresh = refreshing(async () => {
  if (state.days.length) await show();
  const moved = await readChoices();
  if (!state.days.length) {
    fill(byId("twin"), empty("No trades yet. Put a file of trades into the landing folder, or run ", element("code", {}, "tapeline simulate"), "."));
    byId("banner").textContent = "No batch has been published yet.";
    return;
  }
  if (moved) await show();
  await showBanner();
});

// Labels show times in the market's zone; the axis itself is in UTC.
function ticks(rows) {
  const every = Math.max(1, Math.ceil(rows.length / 10));
  const some = rows.filter((_, index) => index % every === 0);
  return { type: "date", tickvals: some.map((row) => row.start), ticktext: some.map((row) => clock(row.start)) };
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", refresh);
document.addEventListener("theme", refresh);
closeOnEscape(byId("why"));
refresh();
follow(refresh);
