// HTML and SVG elements; every text is a text node.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function shape(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
