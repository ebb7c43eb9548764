// Elements of text and attributes, and how a part of the page becomes another one.
//
// The text on the page comes from the network. It becomes text nodes and the values of a few attributes, never
// markup.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "path", "line", "rect", "circle", "ellipse", "text", "title", "polyline", "polygon"]);
/** Characters of a text that is shown; a longer one is cut. */
const LONGEST = 200;

/** A text of bounded length without control or direction characters. */
export function plain(value) {
  const text = String(value ?? "").replace(/[\p{Cc}\p{Cf}]/gu, " ");
  return text.length > LONGEST ? text.slice(0, LONGEST) + "…" : text;
}

/** An element. Children are elements, texts and numbers; null, undefined and false are left out. */
export function el(tag, attributes, ...children) {
  const element = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : plain(value));
    }
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : plain(child));
    }
  }
  return element;
}

/** Makes `old` what `wanted` is, and keeps what is the same: focus, selection and scroll stay where they are. */
export function morph(old, wanted) {
  // Most parts of the page are unchanged, and this comparison by the browser is fast.
  if (old.isEqualNode(wanted)) return;
  if (old.nodeType !== wanted.nodeType || old.nodeName !== wanted.nodeName || key(old) !== key(wanted)) {
    old.replaceWith(wanted);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // Keep a part of the page open that the user has opened.
    if (!wanted.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, [...wanted.childNodes]);
}

/** The same of all children. Those with a key stay what they are wherever they go; the others are told by their place. */
export function morphChildren(parent, wanted) {
  const keyed = new Map([...parent.childNodes].filter(key).map((node) => [key(node), node]));
  const stay = new Set(wanted.map(key));
  let next = parent.firstChild;
  for (const node of wanted) {
    while (next && key(next) && !stay.has(key(next))) next = takeAway(next);
    const same = key(node) ? keyed.get(key(node)) : next && !key(next) && next;
    if (!same) {
      parent.insertBefore(node, next);
      continue;
    }
    if (same === next) next = next.nextSibling;
    else parent.insertBefore(same, next);
    morph(same, node);
  }
  while (next) next = takeAway(next);
}

/** Removes a node, and returns the one behind it. */
function takeAway(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function key(node) {
  return node.nodeType === Node.ELEMENT_NODE ? (node.getAttribute("data-key") ?? "") : "";
}
