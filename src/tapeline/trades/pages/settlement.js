// The settlement ladder: what is paid in and received on each date, by currency, by client on demand.
import { add, api, byId, colour, complain, count, draw, element, empty, fill, follow, minus, negative, options, readable, refreshing, table } from "/static/tapeline.js";
import { closeOnEscape, explain } from "/static/why.js";

const ALL = "all currencies";
const page = byId("content");

const refresh = refreshing(async () => {
  const currencies = await api("values/settlement_due/currency");
  const usual = currencies.values.includes(page.dataset.mainCurrency) ? page.dataset.mainCurrency : ALL;
  options(byId("currency"), [ALL, ...currencies.values], byId("currency").value || usual);
  const currency = byId("currency").value;
  const found = await api("read/due", { where: currency === ALL ? [] : `currency=${currency}`, limit: 2000 });
  if (!found.rows.length) return fill(byId("ladder"), empty("Nothing is due. Trades appear here as soon as a batch holds them."));
  show(found.rows);
  await chart(found.rows);
});

function show(rows) {
  const columns = [
    { title: "settles on", cell: (row) => row.settles_on },
    { title: "settlement", cell: (row) => element("button", { type: "button", class: "plain", onclick: () => why(row) }, row.settlement_id) },
    { title: "currency", cell: (row) => row.currency },
    { title: "bought", number: true, cell: (row) => readable(row.bought) },
    { title: "sold", number: true, cell: (row) => readable(row.sold) },
    { title: "net to settle", number: true, cell: (row) => readable(row.net_to_settle) },
    { title: "fees", number: true, cell: (row) => readable(row.fees) },
    { title: "payable", number: true, cell: (row) => (row.due.startsWith("-") ? "" : readable(row.due)) },
    { title: "receivable", number: true, cell: (row) => (row.due.startsWith("-") ? readable(negative(row.due)) : "") },
    { title: "clients", cell: (row) => element("button", { type: "button", class: "plain", onclick: () => clients(row).catch(complain) }, "by client") },
  ];
  fill(byId("ladder"), table(`${count(rows.length)} settlements`, columns, rows));
}

function why(row) {
  explain(byId("why"), "settlement_due", [row.settlement_id, row.settles_on, row.currency], `${row.settlement_id}, ${row.currency}`).catch(complain);
}

async function chart(rows) {
  const named = [...new Set(rows.map((row) => row.currency))];
  const shapes = ["", "/", "x", ".", "\\", "-", "+", "|"];
  await draw(
    byId("chart"),
    named.map((currency, place) => {
      const some = rows.filter((row) => row.currency === currency);
      return {
        type: "bar", name: currency, x: some.map((row) => row.settles_on), y: some.map((row) => Number(row.due)),
        customdata: some.map((row) => readable(row.due)), hovertemplate: "%{customdata}",
        marker: { color: some.map((row) => colour(row.due.startsWith("-") ? "sell" : "buy")), pattern: { shape: shapes[place % shapes.length], fgcolor: colour("paper") } },
      };
    }),
    { barmode: "group", xaxis: { type: "category" }, yaxis: { title: { text: "due: paid in above zero, received below" }, tickformat: "~s" } },
  );
}

// What each client owes or gets: from the summary of clients where the books have one, else from the trades.
async function balances(where) {
  if (page.dataset.clientDue === "yes") {
    const found = await api("read/client_due", { where, limit: 10000 });
    const listed = found.rows.map((row) => ({ client: row.client, amount: add(minus(row.bought, row.sold), row.fees) }));
    return { listed, more: found.next_offset };
  }
  const found = await api("read/enriched_trades", { where, group: ["client", "side"], sum: ["amount", "fees"], limit: 10000 });
  const due = new Map();
  for (const part of found.rows) {
    const amount = part.side === "BUY" ? add(part.amount, part.fees) : minus(part.fees, part.amount);
    due.set(part.client, add(due.get(part.client) ?? "0", amount));
  }
  return { listed: [...due].map(([client, amount]) => ({ client, amount })), more: found.next_offset };
}

// One client's receivable does not pay another's payable: the two are added up apart.
async function clients(row) {
  const place = byId("clients");
  place.hidden = false;
  fill(place, element("p", {}, "Reading the clients of this settlement …"));
  const { listed, more } = await balances([`settlement_id=${row.settlement_id}`, `settles_on=${row.settles_on}`, `currency=${row.currency}`]);
  const payable = listed.filter((one) => !one.amount.startsWith("-")).reduce((sum, one) => add(sum, one.amount), "0");
  const receivable = listed.filter((one) => one.amount.startsWith("-")).reduce((sum, one) => minus(sum, one.amount), "0");
  const columns = [
    { title: "client", cell: (one) => named(row, one.client) },
    { title: "payable", number: true, cell: (one) => (one.amount.startsWith("-") ? "" : readable(one.amount)) },
    { title: "receivable", number: true, cell: (one) => (one.amount.startsWith("-") ? readable(negative(one.amount)) : "") },
  ];
  fill(
    place,
    element("h2", { tabindex: "-1" }, `${row.settlement_id}, ${row.currency}, by client`),
    element("p", {}, `Payable ${readable(payable)}, receivable ${readable(receivable)}, ${count(listed.length)} clients${more ? " (the first ones)" : ""}.`),
    element("div", { class: "scroll" }, table("Each client's own balance", columns, listed)),
    element("button", { type: "button", onclick: () => { place.hidden = true; } }, "Close"),
  );
  place.querySelector("h2").focus();
}

// A click on a client explains the balance, where a summary holds it.
function named(row, client) {
  if (page.dataset.clientDue !== "yes") return client;
  const key = [row.settlement_id, row.settles_on, client, row.currency];
  const explained = () => explain(byId("why"), "client_due", key, `${row.settlement_id}, ${client}, ${row.currency}`).catch(complain);
  return element("button", { type: "button", class: "plain", onclick: explained }, client);
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", refresh);
document.addEventListener("theme", refresh);
closeOnEscape(byId("why"));
closeOnEscape(byId("clients"));
refresh();
follow(refresh);
