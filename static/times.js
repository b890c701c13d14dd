// Shows times of day in the zone of this browser. Without this script they are in UTC, and say so.
"use strict";

// In the language of the page; in English as the server writes it.
const locale = document.documentElement.lang === "en" ? "en-GB" : document.documentElement.lang;
const dateOf = (time) => time.toLocaleDateString(locale, { dateStyle: "long" });
const clockOf = (time) => time.toLocaleTimeString(locale, { timeStyle: "short" });
const dayOf = (time) =>
  locale === "en-GB"
    ? `${time.toLocaleDateString(locale, { weekday: "long" })}, ${dateOf(time)}`
    : time.toLocaleDateString(locale, { dateStyle: "full" });
const momentOf = (time) =>
  locale === "en-GB"
    ? `${dateOf(time)}, ${clockOf(time)}`
    : time.toLocaleString(locale, { dateStyle: "long", timeStyle: "short" });

for (const element of document.querySelectorAll("time")) {
  const time = new Date(element.dateTime);
  if (!time.getTimezoneOffset()) continue; // it is UTC there, or no calendar has this time
  element.textContent = element.closest(".log") ? clockOf(time) : momentOf(time);
  for (const words of document.querySelectorAll("[data-local]")) words.textContent = words.dataset.local;
}

// The log has a list for each day: its days begin at midnight here, too.
const [heading, list, ...others] = document.querySelectorAll(".day, .log");
let day, lines;
for (const line of document.querySelectorAll(".log li")) {
  const shown = dayOf(new Date(line.querySelector("time").dateTime));
  if (shown !== day) {
    const title = heading.cloneNode();
    title.textContent = day = shown;
    lines = list.cloneNode();
    heading.before(title, lines);
  }
  lines.append(line);
}
for (const each of [heading, list, ...others]) each?.remove();
