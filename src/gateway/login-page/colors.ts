// The part of the pages' scripts that sets the colour of the Bureau.
export const colors = `
/** The parts of a colour as linear light, from 0 to 1 (WCAG 2.2, relative luminance). */
function linearParts(color) {
  return [1, 3, 5].map((offset) => {
    const part = parseInt(color.slice(offset, offset + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
}

function luminance(color) {
  const [red, green, blue] = linearParts(color);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(color, other) {
  const [darker, lighter] = [luminance(color), luminance(other)].sort((a, b) => a - b);
  return (lighter + 0.05) / (darker + 0.05);
}

/**
 * Sets the colour of the Bureau, with black or white text, whichever has more contrast. A colour that looks
 * like the card's is replaced by the page's text colour. A colour with little contrast to the card gets a
 * border.
 */
function applyColor(color) {
  const root = document.documentElement.style;
  for (const name of ['--accent', '--on-accent', '--edge']) root.removeProperty(name);
  const card = getComputedStyle(document.documentElement).getPropertyValue('--card').trim();
  const distance = Math.max(...[1, 3, 5].map((offset) =>
    Math.abs(parseInt(color.slice(offset, offset + 2), 16) - parseInt(card.slice(offset, offset + 2), 16))));
  // Colours that differ by less than an eighth of the range in every part look alike.
  if (distance < 32) {
    root.setProperty('--accent', 'var(--ink)');
    root.setProperty('--on-accent', 'var(--card)');
    return;
  }
  root.setProperty('--accent', color);
  // At a luminance of 0.179, black and white have the same contrast.
  root.setProperty('--on-accent', luminance(color) > 0.179 ? '#000' : '#fff');
  // WCAG 2.2, 1.4.11: controls need a contrast of 3.
  if (contrast(color, card) < 3) root.setProperty('--edge', 'var(--field)');
}

/** Applies the colour now, and again whenever the browser switches between light and dark. */
function applyColorAlways(color) {
  applyColor(color);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => applyColor(color));
}

/** The first letter of a name. */
function initialOf(name) { return ([...name.trim()][0] || '?').toUpperCase(); }
`;
