"use strict";
// Elements are made from data and then merged into the page. Texts never become markup.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

const h = (tag, attributes, ...children) =>
  build(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  build(document.createElementNS(SVG, tag), attributes, children);

// Makes `from` equal to `to` and keeps its elements, so that focus and selection stay.
function merge(from, to) {
  const key = (node) => node.dataset?.key;
  if (from.nodeName !== to.nodeName || key(from) !== key(to)) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name)) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  mergeChildren(from, [...to.childNodes]);
}

function mergeChildren(parent, wanted) {
  const present = [...parent.childNodes];
  wanted.forEach((node, i) => (i < present.length ? merge(present[i], node) : parent.append(node)));
  present.slice(wanted.length).forEach((node) => node.remove());
}

function show(id, ...children) {
  const holder = h("div", {}, ...children);
  mergeChildren(document.getElementById(id), [...holder.childNodes]);
}

// Numbers, times and names as text.

const known = (value) => value !== null && value !== undefined;
const number = (value, digits = 4) => (known(value) ? value.toPrecision(digits) : "–");
const whole = (value) => (known(value) ? value.toLocaleString("en") : "–");
const percent = (value) => (known(value) ? `${value.toFixed(1)} %` : "–");
const short = (text, length = 14) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

function bytes(count) {
  if (!known(count)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (count >= 999.5 && at < units.length - 1) { count /= 1000; at += 1; }
  return `${at ? count.toPrecision(3) : count} ${units[at]}`;
}

function duration(seconds) {
  if (!known(seconds)) return "–";
  const [days, hours, minutes] = [seconds / 86400, seconds / 3600, seconds / 60].map(Math.floor);
  if (days >= 2) return `${days} days`;
  if (hours >= 2) return `${hours} h`;
  if (minutes >= 2) return `${minutes} min`;
  return `${Math.max(0, Math.floor(seconds))} s`;
}

const metricText = (metric, value) => (metric === "loss" ? number(value) : percent(value));
