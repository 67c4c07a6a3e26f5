// How the page is written: text goes in as text, never as markup.

export const $ = (id) => document.getElementById(id);

export function field(row, name) {
  return row.querySelector(`[data-field="${name}"]`);
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setData(node, name, value) {
  if (node.dataset[name] !== value) node.dataset[name] = value;
}

export function setShape(row, shape) {
  const use = row.querySelector("use");
  if (use.getAttribute("href") !== `#${shape}`) use.setAttribute("href", `#${shape}`);
}

// Return a function that makes *parent* hold one row for each item, in their order, and touches only what differs.
export function list(parent, template, keyOf, update) {
  const rows = new Map();
  return (items) => {
    const wanted = new Set();
    let next = parent.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      if (wanted.has(key)) continue;
      wanted.add(key);
      let row = rows.get(key);
      if (row === undefined) {
        row = $(template).content.firstElementChild.cloneNode(true);
        rows.set(key, row);
      }
      update(row, item);
      if (row === next) next = next.nextElementSibling;
      else parent.insertBefore(row, next);
    }
    for (const [key, row] of rows) {
      if (!wanted.has(key)) {
        row.remove();
        rows.delete(key);
      }
    }
  };
}

const SVG = "http://www.w3.org/2000/svg";

// Make *svg* hold one element of *name* for each set of attributes.
export function setShapes(svg, name, all) {
  while (svg.childElementCount > all.length) svg.lastElementChild.remove();
  all.forEach((attributes, index) => {
    const element = svg.children[index] ?? svg.appendChild(document.createElementNS(SVG, name));
    for (const [attribute, value] of Object.entries(attributes)) {
      if (element.getAttribute(attribute) !== value) element.setAttribute(attribute, value);
    }
  });
}
